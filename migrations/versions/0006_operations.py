"""Assets that were removed, indexes for the metrics, and views that group by numbers."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    -- A removed asset keeps its row: claims and their history refer to it.
    ALTER TABLE assets ADD removed_at timestamptz;

    -- What the metrics ask every few seconds, whatever the size of the tables.
    CREATE INDEX runs_by_time ON runs (created_at);
    CREATE INDEX videos_failed ON videos (reason) WHERE status = 'failed';
    CREATE INDEX searches_failed ON searches (reason) WHERE status = 'failed';

    -- Grouped by numbers first and named afterwards: hashing or sorting a text for each of a
    -- million rows took longer than reading them.
    CREATE OR REPLACE VIEW segments_by_transformation AS
    SELECT is_reversed,
           CASE WHEN is_slower THEN 'slower' WHEN is_faster THEN 'faster' ELSE 'as it was' END
                                            AS tempo,
           segments, seconds, mean_score
    FROM (SELECT segments.is_reversed       AS is_reversed,
                 segments.speed < 0.9       AS is_slower,
                 segments.speed > 1.1       AS is_faster,
                 count(*)                   AS segments,
                 sum(segments.seconds)      AS seconds,
                 avg(segments.score)        AS mean_score
          FROM segments WHERE segments.claim_id IS NOT NULL
          GROUP BY 1, 2, 3) AS grouped;

    CREATE OR REPLACE VIEW infringing_seconds_by_asset AS
    SELECT owners.name                      AS owner,
           assets.title                     AS asset,
           grouped.uploads, grouped.segments, grouped.infringing_seconds, grouped.last_found_at
    FROM (SELECT claims.asset_id            AS asset_id,
                 count(*)                   AS uploads,
                 sum(claims.segments)       AS segments,
                 sum(claims.seconds)        AS infringing_seconds,
                 max(claims.last_found_at)  AS last_found_at
          FROM standing_claims AS claims GROUP BY claims.asset_id) AS grouped
    JOIN assets ON assets.id = grouped.asset_id
    JOIN owners ON owners.id = assets.owner_id;

    CREATE OR REPLACE VIEW claims_daily AS
    -- Days are UTC's, so that a report is the same whoever's session reads it.
    SELECT grouped.day                      AS day,
           owners.name                      AS owner,
           raised, confirmed, disputed, upheld, released, expired
    FROM (SELECT (claim_events.at AT TIME ZONE 'UTC')::date                   AS day,
                 assets.owner_id                                              AS owner_id,
                 count(*) FILTER (WHERE claim_events.from_status IS NULL)     AS raised,
                 count(*) FILTER (WHERE claim_events.to_status = 'active'
                                    AND claim_events.from_status IS NOT NULL
                                    AND claim_events.actor <> 'engine')       AS confirmed,
                 count(*) FILTER (WHERE claim_events.to_status = 'disputed')  AS disputed,
                 count(*) FILTER (WHERE claim_events.to_status = 'upheld')    AS upheld,
                 count(*) FILTER (WHERE claim_events.to_status = 'released')  AS released,
                 count(*) FILTER (WHERE claim_events.to_status = 'expired')   AS expired
          FROM claim_events
          JOIN claims ON claims.id = claim_events.claim_id
          JOIN assets ON assets.id = claims.asset_id
          GROUP BY 1, 2) AS grouped
    JOIN owners ON owners.id = grouped.owner_id;

    CREATE OR REPLACE VIEW search_turnaround AS
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
    """)


def downgrade() -> None:
    op.execute("""
    CREATE OR REPLACE VIEW search_turnaround AS
    SELECT searches.created_at::date        AS day,
           count(*)                         AS searches,
           count(*) FILTER (WHERE searches.status = 'done')   AS done,
           count(*) FILTER (WHERE searches.status = 'failed') AS failed,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY
               extract(epoch FROM searches.finished_at - searches.created_at)) AS median_seconds,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY
               extract(epoch FROM searches.finished_at - searches.created_at)) AS slow_seconds,
           sum(searches.pairs_total)        AS pairs
    FROM searches GROUP BY searches.created_at::date;

    CREATE OR REPLACE VIEW claims_daily AS
    SELECT (claim_events.at AT TIME ZONE 'UTC')::date                   AS day,
           owners.name                                                  AS owner,
           count(*) FILTER (WHERE claim_events.from_status IS NULL)     AS raised,
           count(*) FILTER (WHERE claim_events.to_status = 'active'
                              AND claim_events.from_status IS NOT NULL) AS confirmed,
           count(*) FILTER (WHERE claim_events.to_status = 'disputed')  AS disputed,
           count(*) FILTER (WHERE claim_events.to_status = 'upheld')    AS upheld,
           count(*) FILTER (WHERE claim_events.to_status = 'released')  AS released,
           count(*) FILTER (WHERE claim_events.to_status = 'expired')   AS expired
    FROM claim_events
    JOIN claims ON claims.id = claim_events.claim_id
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    GROUP BY (claim_events.at AT TIME ZONE 'UTC')::date, owners.name;

    CREATE OR REPLACE VIEW infringing_seconds_by_asset AS
    SELECT owners.name                      AS owner,
           assets.title                     AS asset,
           count(*)                         AS uploads,
           sum(claims.segments)             AS segments,
           sum(claims.seconds)              AS infringing_seconds,
           max(claims.last_found_at)        AS last_found_at
    FROM standing_claims AS claims
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    GROUP BY owners.name, assets.id, assets.title;

    CREATE OR REPLACE VIEW segments_by_transformation AS
    SELECT segments.is_reversed             AS is_reversed,
           CASE WHEN segments.speed < 0.9 THEN 'slower'
                WHEN segments.speed > 1.1 THEN 'faster' ELSE 'as it was' END AS tempo,
           count(*)                         AS segments,
           sum(segments.seconds)            AS seconds,
           avg(segments.score)              AS mean_score
    FROM segments WHERE segments.claim_id IS NOT NULL
    GROUP BY 1, 2;

    DROP INDEX searches_failed, videos_failed, runs_by_time;
    ALTER TABLE assets DROP removed_at;
    """)
