"""The desk and the API: notes, assignment, undo and stake of claims; keys, accesses, webhooks."""

from alembic import op

revision = "0018"
down_revision = "0017"
runs_since = "0017"  # columns and tables more; a trigger keeps the stake for code that knows none
branch_labels = None
depends_on = None

CLAIMS = """
    -- What is at stake in a claim: seconds x score x days of age, a begun day counted as one. Kept
    -- in a column, so that a queue is read by index; it is right as of `staked_on`.
    ALTER TABLE claims
        ADD stake        double precision NOT NULL DEFAULT 0,
        ADD staked_on    date NOT NULL DEFAULT current_date,
        ADD assignee     text, -- who looks at it
        ADD manual_spans nummultirange NOT NULL DEFAULT '{}'; -- seconds that a person claimed
    CREATE FUNCTION claim_stake(seconds double precision, score double precision,
                                raised_at timestamptz) RETURNS double precision
        LANGUAGE sql STABLE AS $$
        SELECT seconds * score
               * greatest(1, ceil(extract(epoch FROM now() - raised_at) / 86400))::float $$;
    CREATE FUNCTION keep_claim_stake() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.stake := claim_stake(NEW.seconds, NEW.score, NEW.created_at);
            NEW.staked_on := current_date;
            RETURN NEW;
        END $$;
    CREATE TRIGGER claims_keep_stake BEFORE INSERT OR UPDATE OF seconds, score ON claims
        FOR EACH ROW EXECUTE FUNCTION keep_claim_stake();
    UPDATE claims SET stake = claim_stake(seconds, score, created_at);
    CREATE INDEX claims_queued_by_stake ON claims (stake DESC, id DESC);
    CREATE INDEX claims_queued_by_seconds ON claims (seconds DESC, id DESC);
    CREATE INDEX claims_queued_by_score ON claims (score DESC, id DESC);
    CREATE INDEX claims_staked_on ON claims (staked_on)
        WHERE status IN ('potential', 'active', 'disputed', 'upheld');

    -- An undo is an event that names the one it takes back. A sibling that was released with
    -- another claim names that one.
    ALTER TABLE claim_events
        ADD undoes bigint UNIQUE REFERENCES claim_events,
        ADD led_by bigint REFERENCES claims;
    -- What persons decided and did not take back: the engine moves no claim against it.
    CREATE VIEW claim_decisions AS
    SELECT id, claim_id, at, actor, from_status, to_status, reason, note FROM claim_events
    WHERE actor <> 'engine' AND undoes IS NULL
      AND NOT EXISTS (SELECT 1 FROM claim_events AS later WHERE later.undoes = claim_events.id);

    CREATE TABLE claim_notes (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        claim_id    bigint NOT NULL REFERENCES claims,
        at          timestamptz NOT NULL DEFAULT now(),
        author      text NOT NULL,
        note        text NOT NULL CHECK (note <> '')
    );
    CREATE INDEX claim_notes_by_claim ON claim_notes (claim_id, id);

    ALTER TABLE searches ADD asked_by text; -- the key that asked, where one did
"""

ACCESS = """
    CREATE TABLE api_keys (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name        text NOT NULL UNIQUE CHECK (name <> ''), -- the actor in histories
        digest      text NOT NULL UNIQUE, -- SHA-256; the key itself is kept nowhere
        role        text NOT NULL CHECK (role IN ('reader', 'reviewer', 'manager', 'service')),
        is_scoped   boolean NOT NULL, -- to the owners of api_key_owners; false: all owners
        created_at  timestamptz NOT NULL DEFAULT now(),
        created_by  text NOT NULL,
        revoked_at  timestamptz,
        used_at     timestamptz
    );
    CREATE TABLE api_key_owners (
        key_id      bigint NOT NULL REFERENCES api_keys ON DELETE CASCADE,
        owner_id    bigint NOT NULL REFERENCES owners,
        PRIMARY KEY (key_id, owner_id)
    );
    CREATE TABLE accesses (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at          timestamptz NOT NULL,
        viewer      text, -- null: nobody that we know
        method      text NOT NULL,
        path        text NOT NULL,
        status      integer NOT NULL,
        address     text,
        milliseconds double precision NOT NULL
    );
    CREATE INDEX accesses_by_time ON accesses (at);
    CREATE INDEX accesses_by_viewer ON accesses (viewer, at);
    -- Answers to POSTs that were sent with a key of idempotency, for a day. Without a status the
    -- request is under way.
    CREATE TABLE idempotency_keys (
        viewer      text NOT NULL,
        key         text NOT NULL,
        request     text NOT NULL, -- digest of method, path and body
        status      integer,
        media_type  text,
        body        bytea,
        created_at  timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (viewer, key)
    );
    CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
    -- A browser's login: the cookie is a random word, of which the digest is kept.
    CREATE TABLE web_sessions (
        digest      text PRIMARY KEY,
        key_id      bigint NOT NULL REFERENCES api_keys ON DELETE CASCADE,
        csrf        text NOT NULL,
        created_at  timestamptz NOT NULL DEFAULT now(),
        expires_at  timestamptz NOT NULL
    );
    CREATE TABLE upload_sessions (
        id          text PRIMARY KEY,
        viewer      text NOT NULL,
        file        text NOT NULL, -- name within the folder of uploads, never a client's
        size        bigint NOT NULL CHECK (size > 0),
        facts       jsonb NOT NULL, -- title, uploader, platform's id, URL, time
        search_id   text, -- when it is complete
        created_at  timestamptz NOT NULL DEFAULT now(),
        moved_at    timestamptz NOT NULL DEFAULT now()
    );
"""

WEBHOOKS = """
    CREATE TABLE webhooks (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        url         text NOT NULL,
        secret      text NOT NULL, -- signs; the receiver has it too, so it cannot be a digest
        events      text[] NOT NULL,
        is_scoped   boolean NOT NULL,
        owner_ids   bigint[] NOT NULL DEFAULT '{}',
        created_by  text NOT NULL,
        created_at  timestamptz NOT NULL DEFAULT now(),
        removed_at  timestamptz
    );
    -- What happened, in the order in which it did; written in the transaction that did it.
    CREATE TABLE webhook_events (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        type        text NOT NULL,
        claim_event bigint UNIQUE, -- of claim_events
        search_id   text,
        owner_id    bigint,
        at          timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE webhook_deliveries (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        webhook_id  bigint NOT NULL REFERENCES webhooks,
        event_id    bigint NOT NULL REFERENCES webhook_events,
        status      text NOT NULL DEFAULT 'waiting'
                    CHECK (status IN ('waiting', 'delivered', 'dead')),
        attempts    integer NOT NULL DEFAULT 0,
        due_at      timestamptz NOT NULL DEFAULT now(),
        answer      text, -- of the last attempt
        delivered_at timestamptz,
        UNIQUE (webhook_id, event_id)
    );
    CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, due_at)
        WHERE status = 'waiting';
    CREATE INDEX webhook_deliveries_dead ON webhook_deliveries (id) WHERE status = 'dead';

    -- By trigger, since an event must not be lost whichever process writes it. Where nobody
    -- listens, nothing is written.
    CREATE FUNCTION tell_webhooks(kind text, event bigint, search text, owner bigint)
        RETURNS void LANGUAGE plpgsql AS $$
        DECLARE told bigint;
        BEGIN
            IF NOT EXISTS (SELECT 1 FROM webhooks WHERE removed_at IS NULL
                           AND kind = ANY(events)
                           AND (NOT is_scoped OR owner = ANY(owner_ids))) THEN
                RETURN;
            END IF;
            INSERT INTO webhook_events (type, claim_event, search_id, owner_id)
            VALUES (kind, event, search, owner) RETURNING id INTO told;
            INSERT INTO webhook_deliveries (webhook_id, event_id)
            SELECT id, told FROM webhooks WHERE removed_at IS NULL AND kind = ANY(events)
               AND (NOT is_scoped OR owner = ANY(owner_ids));
        END $$;
    CREATE FUNCTION tell_of_claim() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM tell_webhooks(
                CASE WHEN NEW.from_status IS NULL THEN 'claim.raised' ELSE 'claim.changed' END,
                NEW.id, NULL, (SELECT assets.owner_id FROM claims
                               JOIN assets ON assets.id = claims.asset_id
                               WHERE claims.id = NEW.claim_id));
            RETURN NULL;
        END $$;
    CREATE TRIGGER claim_events_tell AFTER INSERT ON claim_events
        FOR EACH ROW EXECUTE FUNCTION tell_of_claim();
    CREATE FUNCTION tell_of_search() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM tell_webhooks('search.finished', NULL, NEW.id, NULL);
            RETURN NULL;
        END $$;
    CREATE TRIGGER searches_tell AFTER UPDATE OF status ON searches
        FOR EACH ROW WHEN (NEW.status IN ('done', 'incomplete', 'failed')
                           AND OLD.status IS DISTINCT FROM NEW.status)
        EXECUTE FUNCTION tell_of_search();
"""


def upgrade() -> None:
    op.execute(CLAIMS)
    op.execute(ACCESS)
    op.execute(WEBHOOKS)


def downgrade() -> None:
    op.execute("""
    DROP TRIGGER searches_tell ON searches;
    DROP TRIGGER claim_events_tell ON claim_events;
    DROP FUNCTION tell_of_search, tell_of_claim, tell_webhooks;
    DROP TABLE webhook_deliveries, webhook_events, webhooks, upload_sessions, web_sessions,
               idempotency_keys, accesses, api_key_owners, api_keys, claim_notes;
    ALTER TABLE searches DROP asked_by;
    DROP VIEW claim_decisions;
    ALTER TABLE claim_events DROP undoes, DROP led_by;
    DROP TRIGGER claims_keep_stake ON claims;
    DROP INDEX claims_queued_by_seconds, claims_queued_by_score;
    ALTER TABLE claims DROP stake, DROP staked_on, DROP assignee, DROP manual_spans;
    DROP FUNCTION keep_claim_stake, claim_stake;
    """)
