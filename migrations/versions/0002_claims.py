"""The plugin's tables: owners, assets, reference videos, claims and events, runs, segments."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE owners (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name        text NOT NULL UNIQUE CHECK (name <> ''),
        created_at  timestamptz NOT NULL DEFAULT now()
    );

    CREATE TABLE assets (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        owner_id    bigint NOT NULL REFERENCES owners,
        title       text NOT NULL CHECK (title <> ''),
        created_at  timestamptz NOT NULL DEFAULT now(),
        UNIQUE (owner_id, title)
    );

    CREATE TABLE reference_videos (
        video_id    text PRIMARY KEY REFERENCES videos,
        asset_id    bigint NOT NULL REFERENCES assets,
        created_at  timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX reference_videos_by_asset ON reference_videos (asset_id);

    CREATE TABLE claims (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        asset_id    bigint NOT NULL REFERENCES assets,
        query_id    text NOT NULL REFERENCES videos,
        status      text NOT NULL DEFAULT 'potential' CHECK (status IN
                    ('potential', 'active', 'disputed', 'upheld', 'released', 'expired')),
        reason      text,
        created_at  timestamptz NOT NULL DEFAULT now(),
        updated_at  timestamptz NOT NULL DEFAULT now(),
        UNIQUE (asset_id, query_id)
    );
    CREATE INDEX claims_by_status ON claims (status, created_at DESC);
    CREATE INDEX claims_by_query ON claims (query_id);

    CREATE TABLE claim_events (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        claim_id    bigint NOT NULL REFERENCES claims,
        at          timestamptz NOT NULL DEFAULT now(),
        actor       text NOT NULL,
        from_status text,
        to_status   text NOT NULL,
        reason      text,
        note        text
    );
    CREATE INDEX claim_events_by_claim ON claim_events (claim_id, id);
    CREATE INDEX claim_events_by_day ON claim_events (at);
    CREATE FUNCTION claim_events_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'claim_events is append-only'; END $$;
    CREATE TRIGGER claim_events_append_only BEFORE UPDATE OR DELETE ON claim_events
        FOR EACH ROW EXECUTE FUNCTION claim_events_are_append_only();

    -- One finished localization of a pair. UNIQUE: a pair that ran twice is recorded once.
    CREATE TABLE runs (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        pair_id     bigint NOT NULL UNIQUE REFERENCES pairs,
        localizer   text NOT NULL,
        worker      text NOT NULL,
        seconds     double precision NOT NULL,
        created_at  timestamptz NOT NULL DEFAULT now()
    );

    CREATE TABLE segments (
        id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        run_id          bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
        claim_id        bigint REFERENCES claims,
        query_id        text NOT NULL REFERENCES videos,
        reference_id    text NOT NULL REFERENCES videos,
        query_span      numrange NOT NULL CHECK (NOT isempty(query_span)),
        reference_span  numrange NOT NULL CHECK (NOT isempty(reference_span)),
        score           double precision NOT NULL CHECK (score BETWEEN 0 AND 1),
        is_reversed     boolean NOT NULL,
        speed           double precision NOT NULL CHECK (speed > 0),
        created_at      timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX segments_by_run ON segments (run_id);
    CREATE INDEX segments_by_claim ON segments (claim_id);
    CREATE INDEX segments_by_query ON segments (query_id);
    CREATE INDEX segments_by_reference ON segments (reference_id);
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE segments, runs, claim_events, claims, reference_videos, assets, owners;
    DROP FUNCTION claim_events_are_append_only;
    """)
