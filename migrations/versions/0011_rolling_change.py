"""When a pair was asked for last, by which later methods stand before earlier ones."""

from alembic import op

revision = "0011"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    -- Weights that were taken back are asked for again: their pairs are older, and stand in front.
    ALTER TABLE pairs ADD asked_at timestamptz;
    UPDATE pairs SET asked_at = created_at;
    ALTER TABLE pairs ALTER asked_at SET DEFAULT clock_timestamp(),
                      ALTER asked_at SET NOT NULL;

    -- Whether any worker still has a localizer that a waiting pair asks for.
    CREATE INDEX pairs_by_model ON pairs (model, finished_at);
    """)


def downgrade() -> None:
    op.execute("""
    DROP INDEX pairs_by_model;
    ALTER TABLE pairs DROP asked_at;
    """)
