"""When a pair was asked for last, and which code may run on a schema."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
runs_since = "0009"  # the oldest revision whose code may run on this one; without it: this one


def upgrade() -> None:
    op.execute("""
    -- Weights that were taken back are asked for again: their pairs are older, and stand in front.
    ALTER TABLE pairs ADD asked_at timestamptz;
    UPDATE pairs SET asked_at = created_at;
    ALTER TABLE pairs ALTER asked_at SET DEFAULT clock_timestamp(),
                      ALTER asked_at SET NOT NULL;

    -- Whether any worker still has a localizer that a waiting pair asks for.
    CREATE INDEX pairs_by_model ON pairs (model, finished_at);

    -- What `runs_since` of the revisions comes to, for code that does not know the newest of them.
    CREATE TABLE schema_support (revision text PRIMARY KEY, runs_since text NOT NULL);
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE schema_support;
    DROP INDEX pairs_by_model;
    ALTER TABLE pairs DROP asked_at;
    """)
