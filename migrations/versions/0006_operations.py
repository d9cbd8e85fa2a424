"""Assets that were removed, and indexes for what the metrics ask every few seconds."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    -- A removed asset keeps its row: claims and their history refer to it.
    ALTER TABLE assets ADD removed_at timestamptz;

    CREATE INDEX runs_by_time ON runs (created_at);
    CREATE INDEX videos_failed ON videos (reason) WHERE status = 'failed';
    CREATE INDEX searches_failed ON searches (reason) WHERE status = 'failed';
    """)


def downgrade() -> None:
    op.execute("""
    DROP INDEX searches_failed, videos_failed, runs_by_time;
    ALTER TABLE assets DROP removed_at;
    """)
