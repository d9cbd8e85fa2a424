"""Messages that came back from a worker they may have killed, for tasks that have no row yet."""

from alembic import op

revision = "0016"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE deliveries (
        message     text PRIMARY KEY,
        task        text NOT NULL,
        returns     integer NOT NULL DEFAULT 1,
        returned_at timestamptz NOT NULL DEFAULT now()
    );
    COMMENT ON TABLE deliveries IS
        'messages of tasks without a row that came back unfinished, and how often';
    """)


def downgrade() -> None:
    op.execute("DROP TABLE deliveries")
