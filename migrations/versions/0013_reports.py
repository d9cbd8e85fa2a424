"""Excluded seconds are not infringing; a short match hides no conflict from its other side."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

CONFLICTS = """
    CREATE OR REPLACE VIEW reference_conflicts AS
    SELECT owners.name                      AS owner,
           assets.title                     AS asset,
           side.video_id                    AS reference_id,
           mine.title                       AS reference,
           other_owners.name                AS other_owner,
           other_assets.title               AS other_asset,
           side.other_id                    AS other_reference_id,
           other.title                      AS other_reference,
           lower(side.span)                 AS reference_start,
           upper(side.span)                 AS reference_end,
           lower(side.other_span)           AS other_start,
           upper(side.other_span)           AS other_end,
           segments.score                   AS score,
           segments.created_at              AS found_at
    FROM segments
    CROSS JOIN LATERAL (VALUES
        (false, segments.query_id, segments.reference_id,
         segments.query_span, segments.reference_span),
        (true, segments.reference_id, segments.query_id,
         segments.reference_span, segments.query_span)
    ) AS side (is_mirrored, video_id, other_id, span, other_span)
    JOIN reference_videos ON reference_videos.video_id = side.video_id
    JOIN assets ON assets.id = reference_videos.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS mine ON mine.id = side.video_id
    JOIN videos AS other ON other.id = side.other_id
    JOIN reference_videos AS other_reference ON other_reference.video_id = side.other_id
    JOIN assets AS other_assets ON other_assets.id = other_reference.asset_id
    JOIN owners AS other_owners ON other_owners.id = other_assets.owner_id
    WHERE segments.held = 'reference' AND other_assets.owner_id <> assets.owner_id
      AND (NOT side.is_mirrored OR {is_unseen});
"""

BY_COVERAGE = """
           -- Where each was searched against the other, both have rows of their own, for what was
           -- found both ways.
           coalesce((SELECT covered_seconds(range_agg(direct.query_span * segments.reference_span))
                     FROM segments AS direct
                     WHERE direct.query_id = segments.reference_id
                       AND direct.reference_id = segments.query_id AND direct.held = 'reference'
                       AND direct.query_span && segments.reference_span
                       AND direct.reference_span && segments.query_span), 0)
               < 0.8 * (upper(segments.reference_span) - lower(segments.reference_span))
"""

BY_EXISTENCE = """
           NOT EXISTS (SELECT 1 FROM segments AS direct
                       WHERE direct.query_id = segments.reference_id
                         AND direct.reference_id = segments.query_id
                         AND direct.held = 'reference')
"""

SEGMENTS = """
    CREATE {or_replace} VIEW infringing_segments AS
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
           segments.created_at              AS found_at,
           claims.uploads                   AS times_uploaded,
           claims.upload_id                 AS upload_id,
           upload.uploader                  AS uploader,
           upload.external_id               AS external_id,
           upload.url                       AS url,
           upload.uploaded_at               AS uploaded_at{seconds}
    FROM segments
    JOIN claims ON claims.id = segments.claim_id AND claims.status NOT IN ('released', 'expired')
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = segments.query_id
    JOIN videos AS reference ON reference.id = segments.reference_id
    LEFT JOIN uploads AS upload ON upload.id = claims.upload_id;
"""

SECONDS = """,
           CASE WHEN segments.reference_id IN (SELECT video_id FROM reference_exclusions)
                THEN covered_seconds(infringing_spans(
                         segments.reference_id, segments.query_span, segments.reference_span,
                         segments.is_reversed))
                ELSE segments.seconds END   AS infringing_seconds"""

# The claims that count what was excluded, by the rule before or after.
RECOUNT = """
    WITH found AS MATERIALIZED (
        SELECT claims.id, range_agg({spans}) AS spans
        FROM claims JOIN segments ON segments.claim_id = claims.id
        WHERE claims.status NOT IN ('released', 'expired')
          AND claims.query_id IN (
              SELECT query_id FROM segments
              WHERE reference_id IN (SELECT video_id FROM reference_exclusions))
        GROUP BY claims.id)
    UPDATE claims SET query_spans = found.spans, seconds = covered_seconds(found.spans)
    FROM found WHERE claims.id = found.id AND claims.query_spans <> found.spans;
    UPDATE claims SET meets_another = EXISTS (
        SELECT 1 FROM claims AS other WHERE other.query_id = claims.query_id
           AND other.id <> claims.id AND other.query_spans && claims.query_spans)
    WHERE claims.query_id IN (
        SELECT query_id FROM segments
        WHERE reference_id IN (SELECT video_id FROM reference_exclusions));
"""


def upgrade() -> None:
    op.execute("""
    -- What is left of a segment in the upload when the excluded stretches of its reference are
    -- taken away; to the millisecond, as segments are kept.
    CREATE FUNCTION infringing_spans(
        reference text, query_span numrange, reference_span numrange, is_reversed boolean
    ) RETURNS nummultirange LANGUAGE sql STABLE PARALLEL SAFE AS $$
        SELECT nummultirange(query_span) - coalesce(
            (SELECT range_agg(CASE WHEN is_reversed
                    THEN numrange(round(upper(query_span) - pace * last, 3),
                                  round(upper(query_span) - pace * first, 3))
                    ELSE numrange(round(lower(query_span) + pace * first, 3),
                                  round(lower(query_span) + pace * last, 3)) END)
             FROM (SELECT lower(span * reference_span) - lower(reference_span) AS first,
                          upper(span * reference_span) - lower(reference_span) AS last,
                          (upper(query_span) - lower(query_span))
                              / (upper(reference_span) - lower(reference_span)) AS pace
                   FROM reference_exclusions
                   WHERE video_id = reference AND span && reference_span) AS excluded), '{}')
    $$;
    """)
    op.execute(SEGMENTS.format(or_replace="OR REPLACE", seconds=SECONDS))
    op.execute(CONFLICTS.format(is_unseen=BY_COVERAGE))
    op.execute(
        RECOUNT.format(
            spans="infringing_spans(segments.reference_id, segments.query_span,"
            " segments.reference_span, segments.is_reversed)"
        )
    )


def downgrade() -> None:
    op.execute("DROP VIEW infringing_segments;")
    op.execute(SEGMENTS.format(or_replace="", seconds=""))
    op.execute(CONFLICTS.format(is_unseen=BY_EXISTENCE))
    op.execute(RECOUNT.format(spans="segments.query_span"))
    op.execute("DROP FUNCTION infringing_spans;")
