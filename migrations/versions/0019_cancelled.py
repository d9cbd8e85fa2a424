"""A search that somebody ended is `cancelled`, and so are the pairs that nobody else waits for."""

from alembic import op

revision = "0019"
down_revision = "0018"
# Code from before cannot read a search with a state that it does not know.
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE searches DROP CONSTRAINT searches_status_check, ADD CONSTRAINT searches_status_check
        CHECK (status IN ('waiting', 'running', 'localizing', 'done', 'incomplete', 'failed',
                          'cancelled'));
    ALTER TABLE pairs DROP CONSTRAINT pairs_status_check, ADD CONSTRAINT pairs_status_check
        CHECK (status IN ('waiting', 'running', 'done', 'quarantined', 'cancelled'));

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
           count(*) FILTER (WHERE searches.status = 'incomplete') AS incomplete,
           count(*) FILTER (WHERE searches.status = 'cancelled')  AS cancelled
    FROM searches GROUP BY 1;

    DROP TRIGGER searches_tell ON searches;
    CREATE TRIGGER searches_tell AFTER UPDATE OF status ON searches
        FOR EACH ROW WHEN (NEW.status IN ('done', 'incomplete', 'failed', 'cancelled')
                           AND OLD.status IS DISTINCT FROM NEW.status)
        EXECUTE FUNCTION tell_of_search();
    """)


def downgrade() -> None:
    op.execute("""
    DROP TRIGGER searches_tell ON searches;
    CREATE TRIGGER searches_tell AFTER UPDATE OF status ON searches
        FOR EACH ROW WHEN (NEW.status IN ('done', 'incomplete', 'failed')
                           AND OLD.status IS DISTINCT FROM NEW.status)
        EXECUTE FUNCTION tell_of_search();

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
           sum(searches.pairs_total)        AS pairs,
           count(*) FILTER (WHERE searches.status = 'incomplete') AS incomplete
    FROM searches GROUP BY 1;

    UPDATE searches SET status = 'failed' WHERE status = 'cancelled';
    UPDATE pairs SET status = 'quarantined' WHERE status = 'cancelled';
    ALTER TABLE pairs DROP CONSTRAINT pairs_status_check, ADD CONSTRAINT pairs_status_check
        CHECK (status IN ('waiting', 'running', 'done', 'quarantined'));
    ALTER TABLE searches DROP CONSTRAINT searches_status_check, ADD CONSTRAINT searches_status_check
        CHECK (status IN ('waiting', 'running', 'localizing', 'done', 'incomplete', 'failed'));
    """)
