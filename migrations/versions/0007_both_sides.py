"""Conflicts seen from both sides, and a history of claims that cannot be emptied."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TRIGGER claim_events_not_emptied BEFORE TRUNCATE ON claim_events
        FOR EACH STATEMENT EXECUTE FUNCTION claim_events_are_append_only();

    -- A match is found once, from whichever reference was searched later; both owners must see it.
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
      -- Where each was searched against the other, both have rows of their own.
      AND (NOT side.is_mirrored OR NOT EXISTS (
               SELECT 1 FROM segments AS direct
               WHERE direct.query_id = segments.reference_id
                 AND direct.reference_id = segments.query_id AND direct.held = 'reference'));
    """)


def downgrade() -> None:
    op.execute("""
    CREATE OR REPLACE VIEW reference_conflicts AS
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

    DROP TRIGGER claim_events_not_emptied ON claim_events;
    """)
