"""Which folder is the store of this database."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    -- The store's folder holds the same id in a file: an empty folder where a disk should be
    -- mounted is not taken for a store that lost its files.
    CREATE TABLE store_identity (
        is_only       boolean PRIMARY KEY DEFAULT true CHECK (is_only),
        id            text NOT NULL DEFAULT gen_random_uuid()::text,
        founded_at    timestamptz  -- when a folder was first marked with the id
    );
    INSERT INTO store_identity DEFAULT VALUES;
    """)


def downgrade() -> None:
    op.execute("DROP TABLE store_identity;")
