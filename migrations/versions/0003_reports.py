"""The first reports: their names and columns are part of the contract (docs/reference/sql.md)."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE VIEW infringing_segments AS
    SELECT claims.id                        AS claim_id,
           claims.status                    AS claim_status,
           owners.name                      AS owner,
           assets.title                     AS asset,
           segments.query_id                AS query_id,
           query.title                      AS query,
           segments.reference_id            AS reference_id,
           reference.title                  AS reference,
           lower(segments.query_span)       AS query_start,
           upper(segments.query_span)       AS query_end,
           lower(segments.reference_span)   AS reference_start,
           upper(segments.reference_span)   AS reference_end,
           segments.score                   AS score,
           segments.is_reversed             AS is_reversed,
           segments.speed                   AS speed,
           segments.created_at              AS found_at
    FROM segments
    JOIN claims ON claims.id = segments.claim_id
               AND claims.status NOT IN ('released', 'expired')
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS reference ON reference.id = segments.reference_id;

    -- A second that two segments cover counts once, within each upload.
    CREATE VIEW infringing_seconds_by_asset AS
    WITH uploads AS (
        SELECT claims.asset_id,
               claims.query_id,
               range_agg(segments.query_span) AS spans,
               count(*)                       AS segments,
               max(segments.created_at)       AS last_found_at
        FROM segments
        JOIN claims ON claims.id = segments.claim_id
                   AND claims.status NOT IN ('released', 'expired')
        GROUP BY claims.asset_id, claims.query_id
    )
    SELECT owners.name                  AS owner,
           assets.title                 AS asset,
           count(*)                     AS uploads,
           sum(uploads.segments)::bigint AS segments,
           sum((SELECT sum(upper(span) - lower(span)) FROM unnest(uploads.spans) AS span))
                                        AS infringing_seconds,
           max(uploads.last_found_at)   AS last_found_at
    FROM uploads
    JOIN assets ON assets.id = uploads.asset_id
    JOIN owners ON owners.id = assets.owner_id
    GROUP BY owners.name, assets.id, assets.title;

    CREATE VIEW claims_daily AS
    -- Days are UTC's, so that a report is the same whoever's session reads it.
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
    """)


def downgrade() -> None:
    op.execute("""
    DROP VIEW claims_daily;
    DROP VIEW infringing_seconds_by_asset;
    DROP VIEW infringing_segments;
    """)
