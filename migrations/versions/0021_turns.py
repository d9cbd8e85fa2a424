"""Tables to lock instead of advisory locks, which everybody who may connect can take."""

from alembic import op

revision = "0021"
down_revision = "0020"
# Code before this takes turns by advisory locks: beside code that locks these tables, neither
# would wait for the other.
runs_since = "0021"
branch_labels = None
depends_on = None

SINGLE = ("changes", "sweep", "common_rules")
NAMED = ("pairs", "contents", "reference_rules", "owner_rules", "indexes", "builds")


def upgrade() -> None:
    # A schema of their own: whoever may read `public` has no right here, so no analyst locks one.
    op.execute("CREATE SCHEMA turns")
    op.execute("REVOKE ALL ON SCHEMA turns FROM PUBLIC")
    tables = [*SINGLE, *(f"{name}_{slot:x}" for name in NAMED for slot in range(8))]
    for table in tables:
        op.execute(f"CREATE TABLE turns.{table} ()")


def downgrade() -> None:
    op.execute("DROP SCHEMA turns CASCADE")
