"""All the reports of docs/reference/sql.md, and a role that may read and nothing else."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE FUNCTION covered_seconds(spans nummultirange) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT coalesce(sum(upper(span) - lower(span)), 0)::double precision
        FROM unnest(spans) AS span
    $$;

    DROP VIEW infringing_seconds_by_asset;
    DROP VIEW infringing_segments;

    CREATE VIEW standing_claims AS
    SELECT * FROM claims WHERE status NOT IN ('released', 'expired');

    CREATE VIEW infringing_segments AS
    SELECT claims.id                        AS claim_id,
           claims.status                    AS claim_status,
           claims.action                    AS claim_action,
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
    JOIN standing_claims AS claims ON claims.id = segments.claim_id
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS reference ON reference.id = segments.reference_id;

    -- A claim holds the union of its segments, so overlaps within an upload count once.
    CREATE VIEW infringing_seconds_by_asset AS
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

    -- Two assets of one owner may meet in the same second of an upload: a union again, but only
    -- where there is more than one claim to unite.
    CREATE VIEW infringing_seconds_by_owner AS
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

    CREATE VIEW claims_open AS
    SELECT claims.id                        AS claim_id,
           claims.status                    AS claim_status,
           claims.action                    AS claim_action,
           owners.name                      AS owner,
           assets.title                     AS asset,
           claims.query_id                  AS query_id,
           query.title                      AS query,
           query.uploader                   AS uploader,
           claims.seconds                   AS infringing_seconds,
           claims.seconds / nullif(query.duration, 0) AS infringing_share,
           claims.score                     AS score,
           claims.created_at                AS raised_at
    FROM claims
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = claims.query_id
    WHERE claims.status IN ('potential', 'active', 'disputed');

    CREATE VIEW uploads_by_infringing_share AS
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

    CREATE VIEW segments_by_transformation AS
    SELECT segments.is_reversed             AS is_reversed,
           CASE WHEN segments.speed < 0.9 THEN 'slower'
                WHEN segments.speed > 1.1 THEN 'faster' ELSE 'as it was' END AS tempo,
           count(*)                         AS segments,
           sum(segments.seconds)            AS seconds,
           avg(segments.score)              AS mean_score
    FROM segments WHERE segments.claim_id IS NOT NULL
    GROUP BY 1, 2;

    CREATE VIEW held_segments AS
    SELECT segments.id                      AS segment_id,
           segments.held                    AS reason,
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
           segments.created_at              AS found_at
    FROM segments
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS reference ON reference.id = segments.reference_id
    LEFT JOIN reference_videos ON reference_videos.video_id = segments.reference_id
    LEFT JOIN assets ON assets.id = reference_videos.asset_id
    LEFT JOIN owners ON owners.id = assets.owner_id
    WHERE segments.held IS NOT NULL;

    CREATE VIEW reference_conflicts AS
    SELECT owners.name                      AS owner,
           assets.title                     AS asset,
           segments.query_id                AS reference_id,
           query.title                      AS reference,
           other_owners.name                AS other_owner,
           other_assets.title               AS other_asset,
           segments.reference_id            AS other_reference_id,
           other.title                      AS other_reference,
           lower(segments.query_span)       AS reference_start,
           upper(segments.query_span)       AS reference_end,
           lower(segments.reference_span)   AS other_start,
           upper(segments.reference_span)   AS other_end,
           segments.score                   AS score,
           segments.created_at              AS found_at
    FROM segments
    JOIN reference_videos ON reference_videos.video_id = segments.query_id
    JOIN assets ON assets.id = reference_videos.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS other ON other.id = segments.reference_id
    JOIN reference_videos AS other_reference ON other_reference.video_id = segments.reference_id
    JOIN assets AS other_assets ON other_assets.id = other_reference.asset_id
    JOIN owners AS other_owners ON other_owners.id = other_assets.owner_id
    WHERE segments.held = 'reference' AND other_assets.owner_id <> assets.owner_id;

    CREATE VIEW quarantined_pairs AS
    SELECT pairs.id                         AS pair_id,
           pairs.query_id                   AS query_id,
           query.title                      AS query,
           pairs.reference_id               AS reference_id,
           reference.title                  AS reference,
           pairs.attempts                   AS attempts,
           pairs.reason                     AS reason,
           pairs.message                    AS message,
           pairs.created_at                 AS opened_at
    FROM pairs
    JOIN videos AS query ON query.id = pairs.query_id
    JOIN videos AS reference ON reference.id = pairs.reference_id
    WHERE pairs.status = 'quarantined';
    CREATE INDEX pairs_quarantined ON pairs (id) WHERE status = 'quarantined';

    CREATE VIEW search_turnaround AS
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

    DO $$ BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'vcl_analyst') THEN
            CREATE ROLE vcl_analyst NOLOGIN;
        END IF;
        GRANT USAGE ON SCHEMA public TO vcl_analyst;
        GRANT SELECT ON ALL TABLES IN SCHEMA public TO vcl_analyst;
        ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO vcl_analyst;
    EXCEPTION
        WHEN insufficient_privilege THEN
            RAISE WARNING 'no role vcl_analyst: this account may not create roles';
        WHEN duplicate_object OR unique_violation THEN
            NULL; -- another database of this server made it a moment ago
    END $$;
    """)


def downgrade() -> None:
    # The role stays: other databases of the server may use it.
    op.execute("""
    DO $$ BEGIN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'vcl_analyst') THEN
            ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE SELECT ON TABLES FROM vcl_analyst;
            REVOKE SELECT ON ALL TABLES IN SCHEMA public FROM vcl_analyst;
            REVOKE USAGE ON SCHEMA public FROM vcl_analyst;
        END IF;
    END $$;
    DROP VIEW search_turnaround, quarantined_pairs, reference_conflicts, held_segments,
              segments_by_transformation, uploads_by_infringing_share, claims_open,
              infringing_seconds_by_owner, infringing_seconds_by_asset, infringing_segments,
              standing_claims;
    DROP INDEX pairs_quarantined;
    DROP FUNCTION covered_seconds;

    CREATE VIEW infringing_segments AS
    SELECT claims.id AS claim_id, claims.status AS claim_status, owners.name AS owner,
           assets.title AS asset, segments.query_id AS query_id, query.title AS query,
           segments.reference_id AS reference_id, reference.title AS reference,
           lower(segments.query_span) AS query_start, upper(segments.query_span) AS query_end,
           lower(segments.reference_span) AS reference_start,
           upper(segments.reference_span) AS reference_end, segments.score AS score,
           segments.is_reversed AS is_reversed, segments.speed AS speed,
           segments.created_at AS found_at
    FROM segments
    JOIN claims ON claims.id = segments.claim_id AND claims.status NOT IN ('released', 'expired')
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS reference ON reference.id = segments.reference_id;

    CREATE VIEW infringing_seconds_by_asset AS
    SELECT owners.name AS owner, assets.title AS asset, count(*) AS uploads,
           sum(uploads.segments)::bigint AS segments,
           sum((SELECT sum(upper(span) - lower(span)) FROM unnest(uploads.spans) AS span))
               AS infringing_seconds,
           max(uploads.last_found_at) AS last_found_at
    FROM (SELECT claims.asset_id, claims.query_id, range_agg(segments.query_span) AS spans,
                 count(*) AS segments, max(segments.created_at) AS last_found_at
          FROM segments
          JOIN claims ON claims.id = segments.claim_id
                     AND claims.status NOT IN ('released', 'expired')
          GROUP BY claims.asset_id, claims.query_id) AS uploads
    JOIN assets ON assets.id = uploads.asset_id
    JOIN owners ON owners.id = assets.owner_id
    GROUP BY owners.name, assets.id, assets.title;
    """)
