"""Workers that are there, and the segments of a search as a view."""

from alembic import op

revision = "0022"
down_revision = "0021"
runs_since = "0021"  # a table and a view more
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    -- A worker that was not seen for a while is gone; what it held is freed by its leases.
    CREATE TABLE workers (
        name        text PRIMARY KEY, -- host:pid of its parent
        queues      text[] NOT NULL,
        processes   integer NOT NULL,
        started_at  timestamptz NOT NULL DEFAULT now(),
        seen_at     timestamptz NOT NULL DEFAULT now()
    );
    CREATE VIEW search_segments AS
    SELECT search_pairs.search_id, segments.id AS segment_id, segments.query_id,
           segments.reference_id, reference.title AS reference, assets.title AS asset,
           owners.name AS owner, segments.claim_id,
           lower(segments.query_span)::float AS query_start,
           upper(segments.query_span)::float AS query_end,
           lower(segments.reference_span)::float AS reference_start,
           upper(segments.reference_span)::float AS reference_end,
           segments.score, segments.is_reversed, segments.speed, segments.held
    FROM search_pairs
    JOIN runs ON runs.pair_id = search_pairs.pair_id
    JOIN segments ON segments.run_id = runs.id
    JOIN videos AS reference ON reference.id = segments.reference_id
    LEFT JOIN reference_videos ON reference_videos.video_id = segments.reference_id
    LEFT JOIN assets ON assets.id = reference_videos.asset_id
    LEFT JOIN owners ON owners.id = assets.owner_id;
    """)


def downgrade() -> None:
    op.execute("""
    DROP VIEW search_segments;
    DROP TABLE workers;
    """)
