"""The engine's tables: videos, descriptor sets, index changes, searches, pairs."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE videos (
        id            text PRIMARY KEY CHECK (id <> ''),
        content_hash  text UNIQUE,
        path          text,
        title         text NOT NULL,
        duration      double precision CHECK (duration >= 0),
        is_reference  boolean NOT NULL DEFAULT false,
        status        text NOT NULL DEFAULT 'waiting'
                      CHECK (status IN ('waiting', 'running', 'ready', 'failed')),
        reason        text,
        message       text,
        attempts      integer NOT NULL DEFAULT 0,
        leased_by     text,
        lease_until   timestamptz,
        sent_at       timestamptz,
        created_at    timestamptz NOT NULL DEFAULT now(),
        CHECK (status <> 'failed' OR reason IS NOT NULL)
    );
    CREATE INDEX videos_unfinished ON videos (status, sent_at)
        WHERE status IN ('waiting', 'running');

    CREATE TABLE descriptor_sets (
        video_id      text NOT NULL REFERENCES videos ON DELETE CASCADE,
        fingerprint   text NOT NULL,
        path          text NOT NULL,
        frames        integer NOT NULL CHECK (frames > 0),
        dimension     integer NOT NULL CHECK (dimension > 0),
        created_at    timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (video_id, fingerprint)
    );

    -- The log that every index replays: its order is the order of commits.
    CREATE TABLE index_changes (
        seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        video_id      text NOT NULL,
        fingerprint   text NOT NULL,
        collection    text NOT NULL CHECK (collection IN ('references', 'uploads')),
        action        text NOT NULL CHECK (action IN ('add', 'remove')),
        created_at    timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX index_changes_in_order ON index_changes (collection, fingerprint, seq);

    CREATE TABLE searches (
        id            text PRIMARY KEY CHECK (id <> ''),
        query_id      text NOT NULL REFERENCES videos,
        status        text NOT NULL DEFAULT 'waiting'
                      CHECK (status IN ('waiting', 'running', 'localizing', 'done', 'failed')),
        reason        text,
        message       text,
        pairs_total   integer NOT NULL DEFAULT 0,
        pairs_left    integer NOT NULL DEFAULT 0 CHECK (pairs_left >= 0),
        attempts      integer NOT NULL DEFAULT 0,
        leased_by     text,
        lease_until   timestamptz,
        sent_at       timestamptz,
        created_at    timestamptz NOT NULL DEFAULT now(),
        finished_at   timestamptz,
        CHECK (status <> 'failed' OR reason IS NOT NULL)
    );
    CREATE INDEX searches_unfinished ON searches (status, sent_at)
        WHERE status IN ('waiting', 'running', 'localizing');
    CREATE INDEX searches_by_query ON searches (query_id);

    CREATE TABLE pairs (
        id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        query_id        text NOT NULL REFERENCES videos,
        reference_id    text NOT NULL REFERENCES videos,
        model           text NOT NULL,
        settings_digest text NOT NULL,
        fingerprint     text NOT NULL,
        status          text NOT NULL DEFAULT 'waiting'
                        CHECK (status IN ('waiting', 'running', 'done', 'quarantined')),
        reason          text,
        message         text,
        attempts        integer NOT NULL DEFAULT 0,
        leased_by       text,
        lease_until     timestamptz,
        sent_at         timestamptz,
        created_at      timestamptz NOT NULL DEFAULT now(),
        finished_at     timestamptz,
        UNIQUE (query_id, reference_id, model, settings_digest),
        CHECK (status <> 'quarantined' OR reason IS NOT NULL)
    );
    CREATE INDEX pairs_unfinished ON pairs (status, sent_at)
        WHERE status IN ('waiting', 'running');
    CREATE INDEX pairs_by_reference ON pairs (reference_id);

    -- Two searches of one query share its pairs; each keeps its own rank and score of them.
    CREATE TABLE search_pairs (
        search_id     text NOT NULL REFERENCES searches ON DELETE CASCADE,
        pair_id       bigint NOT NULL REFERENCES pairs ON DELETE CASCADE,
        rank          integer NOT NULL CHECK (rank > 0),
        score         double precision,
        PRIMARY KEY (search_id, pair_id)
    );
    CREATE INDEX search_pairs_by_pair ON search_pairs (pair_id);
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE search_pairs, pairs, searches, index_changes, descriptor_sets, videos;
    """)
