"""A segment may be held because a later comparison of the same two videos found copies too."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE segments DROP CONSTRAINT segments_held_check, ADD CONSTRAINT segments_held_check
        CHECK (held IN ('low_information', 'shared_footage', 'excluded', 'allowed', 'reference',
                        'superseded'));
    """)


def downgrade() -> None:
    op.execute("""
    UPDATE segments SET held = NULL WHERE held = 'superseded';
    ALTER TABLE segments DROP CONSTRAINT segments_held_check, ADD CONSTRAINT segments_held_check
        CHECK (held IN ('low_information', 'shared_footage', 'excluded', 'allowed', 'reference'));
    """)
