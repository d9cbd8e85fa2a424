"""Totals that unite only claims which meet; transformations and conflicts read from indexes."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    -- Whether a claim covers seconds of its upload that another claim covers too, in whatever
    -- state that is: kept with the spans, so a decision about one changes nothing in the other.
    ALTER TABLE claims ADD meets_another boolean NOT NULL DEFAULT false;
    UPDATE claims SET meets_another = true
    WHERE EXISTS (SELECT 1 FROM claims AS other
                  WHERE other.query_id = claims.query_id AND other.id <> claims.id
                    AND other.query_spans && claims.query_spans);

    -- Uniting the spans of 30 000 uploads took a second. Most claims of an upload are of different
    -- stretches: their seconds are added, and only those that meet are united. Read from `claims`,
    -- since the columns of `standing_claims` are those of its making.
    CREATE OR REPLACE VIEW infringing_seconds_by_owner AS
    SELECT owners.name                      AS owner,
           grouped.uploads, grouped.claims, grouped.infringing_seconds, grouped.last_found_at
    FROM (SELECT uploads.owner_id           AS owner_id,
                 count(*)                   AS uploads,
                 sum(uploads.claims)::bigint AS claims,
                 sum(CASE WHEN uploads.meeting < 2 THEN uploads.seconds
                     ELSE (SELECT sum(upper(span) - lower(span))::double precision
                           FROM (SELECT unnest(range_agg(same.query_spans)) AS span
                                 FROM standing_claims AS same
                                 JOIN assets ON assets.id = same.asset_id
                                 WHERE same.query_id = uploads.query_id
                                   AND assets.owner_id = uploads.owner_id) AS united) END)
                                            AS infringing_seconds,
                 max(uploads.last_found_at) AS last_found_at
          FROM (SELECT assets.owner_id, claims.query_id, count(*) AS claims,
                       count(*) FILTER (WHERE claims.meets_another) AS meeting,
                       sum(claims.seconds) AS seconds, max(claims.last_found_at) AS last_found_at
                FROM claims JOIN assets ON assets.id = claims.asset_id
                WHERE claims.status NOT IN ('released', 'expired')
                GROUP BY assets.owner_id, claims.query_id) AS uploads
          GROUP BY uploads.owner_id) AS grouped
    JOIN owners ON owners.id = grouped.owner_id;

    CREATE OR REPLACE VIEW uploads_by_infringing_share AS
    SELECT uploads.query_id                 AS query_id,
           query.title                      AS query,
           query.uploader                   AS uploader,
           query.duration                   AS duration,
           uploads.seconds                  AS infringing_seconds,
           uploads.seconds / nullif(query.duration, 0) AS infringing_share,
           uploads.claims                   AS claims,
           uploads.last_found_at            AS last_found_at
    FROM (SELECT query_id, count(*) AS claims, max(last_found_at) AS last_found_at,
                 CASE WHEN count(*) FILTER (WHERE meets_another) < 2 THEN sum(seconds)
                 ELSE (SELECT sum(upper(span) - lower(span))::double precision
                       FROM (SELECT unnest(range_agg(same.query_spans)) AS span
                             FROM standing_claims AS same
                             WHERE same.query_id = claims.query_id) AS united) END AS seconds
          FROM claims WHERE status NOT IN ('released', 'expired') GROUP BY query_id) AS uploads
    JOIN videos AS query ON query.id = uploads.query_id;

    -- For each conflict it is asked whether the other reference has a row of its own: of all
    -- segments of a reference, only those.
    CREATE INDEX segments_conflicting ON segments (query_id, reference_id)
        WHERE held = 'reference';

    -- Each kind is one stretch of an index that holds all the view needs: a million rows are
    -- neither fetched nor hashed.
    CREATE INDEX segments_transformed ON segments (is_reversed, speed) INCLUDE (seconds, score)
        WHERE claim_id IS NOT NULL;
    CREATE OR REPLACE VIEW segments_by_transformation AS
    SELECT direction.is_reversed, tempo, segments, seconds, mean_score
    FROM (VALUES (false), (true)) AS direction (is_reversed)
    CROSS JOIN LATERAL (
        SELECT 'slower' AS tempo, count(*) AS segments, sum(segments.seconds) AS seconds,
               avg(segments.score) AS mean_score
        FROM segments
        WHERE segments.claim_id IS NOT NULL AND segments.is_reversed = direction.is_reversed
          AND segments.speed < 0.9
        UNION ALL
        SELECT 'as it was', count(*), sum(segments.seconds), avg(segments.score)
        FROM segments
        WHERE segments.claim_id IS NOT NULL AND segments.is_reversed = direction.is_reversed
          AND segments.speed BETWEEN 0.9 AND 1.1
        UNION ALL
        SELECT 'faster', count(*), sum(segments.seconds), avg(segments.score)
        FROM segments
        WHERE segments.claim_id IS NOT NULL AND segments.is_reversed = direction.is_reversed
          AND segments.speed > 1.1) AS kinds
    WHERE segments > 0;
    """)


def downgrade() -> None:
    op.execute("""
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
    DROP INDEX segments_transformed, segments_conflicting;

    CREATE OR REPLACE VIEW uploads_by_infringing_share AS
    SELECT uploads.query_id                 AS query_id,
           query.title                      AS query,
           query.uploader                   AS uploader,
           query.duration                   AS duration,
           uploads.seconds                  AS infringing_seconds,
           uploads.seconds / nullif(query.duration, 0) AS infringing_share,
           uploads.claims                   AS claims,
           uploads.last_found_at            AS last_found_at
    FROM (SELECT query_id, count(*) AS claims, max(last_found_at) AS last_found_at,
                 CASE WHEN count(*) = 1 THEN max(seconds)
                 ELSE (SELECT covered_seconds(range_agg(same.query_spans))
                       FROM standing_claims AS same
                       WHERE same.query_id = claims.query_id) END AS seconds
          FROM standing_claims AS claims GROUP BY query_id) AS uploads
    JOIN videos AS query ON query.id = uploads.query_id;

    CREATE OR REPLACE VIEW infringing_seconds_by_owner AS
    SELECT owners.name                      AS owner,
           count(*)                         AS uploads,
           sum(uploads.claims)::bigint      AS claims,
           sum(CASE WHEN uploads.claims = 1 THEN uploads.seconds
               ELSE (SELECT covered_seconds(range_agg(same.query_spans))
                     FROM standing_claims AS same JOIN assets ON assets.id = same.asset_id
                     WHERE same.query_id = uploads.query_id
                       AND assets.owner_id = uploads.owner_id) END) AS infringing_seconds,
           max(uploads.last_found_at)       AS last_found_at
    FROM (SELECT assets.owner_id, claims.query_id, count(*) AS claims,
                 max(claims.seconds) AS seconds, max(claims.last_found_at) AS last_found_at
          FROM standing_claims AS claims JOIN assets ON assets.id = claims.asset_id
          GROUP BY assets.owner_id, claims.query_id) AS uploads
    JOIN owners ON owners.id = uploads.owner_id
    GROUP BY owners.id, owners.name;

    ALTER TABLE claims DROP meets_another;
    """)
