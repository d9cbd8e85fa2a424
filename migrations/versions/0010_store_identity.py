"""Which folder is the store, searches that end incomplete, and settlings that nobody may lose."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    -- The store's folder holds the same id in a file: an empty folder where a disk should be
    -- mounted is not taken for a store that lost its files.
    CREATE TABLE store_identity (
        is_only       boolean PRIMARY KEY DEFAULT true CHECK (is_only),
        id            text NOT NULL DEFAULT gen_random_uuid()::text,
        founded_at    timestamptz  -- when a folder was first marked with the id
    );
    INSERT INTO store_identity DEFAULT VALUES;

    -- An upload that was compared before and waits only to be judged by today's rules.
    CREATE TABLE unsettled (
        query_id      text PRIMARY KEY REFERENCES videos ON DELETE CASCADE,
        asked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
        sent_at       timestamptz DEFAULT clock_timestamp()
    );

    ALTER TABLE searches DROP CONSTRAINT searches_status_check, ADD CONSTRAINT searches_status_check
        CHECK (status IN ('waiting', 'running', 'localizing', 'done', 'incomplete', 'failed'));
    UPDATE searches SET status = 'incomplete'
    WHERE status = 'done'
      AND EXISTS (SELECT 1 FROM search_pairs JOIN pairs ON pairs.id = search_pairs.pair_id
                  WHERE search_pairs.search_id = searches.id AND pairs.status = 'quarantined');
    CREATE INDEX searches_incomplete ON searches (id) WHERE status = 'incomplete';

    CREATE OR REPLACE VIEW search_turnaround AS
    SELECT (searches.created_at AT TIME ZONE 'UTC')::date     AS day,
           count(*)                         AS searches,
           count(*) FILTER (WHERE searches.status = 'done')   AS done,
           count(*) FILTER (WHERE searches.status = 'failed') AS failed,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY
               extract(epoch FROM searches.finished_at - searches.created_at)) AS median_seconds,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY
               extract(epoch FROM searches.finished_at - searches.created_at)) AS slow_seconds,
           sum(searches.pairs_total)        AS pairs,
           count(*) FILTER (WHERE searches.status = 'incomplete') AS incomplete
    FROM searches GROUP BY 1;
    """)


def downgrade() -> None:
    op.execute("""
    DROP VIEW search_turnaround;
    CREATE VIEW search_turnaround AS
    SELECT (searches.created_at AT TIME ZONE 'UTC')::date     AS day,
           count(*)                         AS searches,
           count(*) FILTER (WHERE searches.status = 'done')   AS done,
           count(*) FILTER (WHERE searches.status = 'failed') AS failed,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY
               extract(epoch FROM searches.finished_at - searches.created_at)) AS median_seconds,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY
               extract(epoch FROM searches.finished_at - searches.created_at)) AS slow_seconds,
           sum(searches.pairs_total)        AS pairs
    FROM searches GROUP BY 1;

    DROP INDEX searches_incomplete;
    UPDATE searches SET status = 'done' WHERE status = 'incomplete';
    ALTER TABLE searches DROP CONSTRAINT searches_status_check, ADD CONSTRAINT searches_status_check
        CHECK (status IN ('waiting', 'running', 'localizing', 'done', 'failed'));
    DROP TABLE unsettled, store_identity;
    """)
