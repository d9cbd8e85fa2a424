"""Rows name descriptor files by their key in the store, not by their path on one machine."""

from alembic import op

revision = "0023"
down_revision = "0022"
runs_since = "0023"  # code before this takes a key for a path below its own folder
branch_labels = None
depends_on = None

# Paths that the store of a site gave, and what stands before their key: there can be several, of a
# home that was moved. Then rows keep their paths, which are read as before.
OWN = """
    SELECT video_id, fingerprint, path, right(path, length(tail)) AS key,
           left(path, -length(tail) - 1) AS root
    FROM (SELECT *, encode(sha256(convert_to(video_id, 'UTF8')), 'hex') AS name
          FROM descriptor_sets) AS named,
         LATERAL (SELECT fingerprint || '/' || left(name, 2) || '/' || name || '.safetensors'
                      AS tail) AS tails
    WHERE starts_with(path, '/') AND right(path, length(tail) + 1) = '/' || tail
"""


def upgrade() -> None:
    op.execute("ALTER TABLE store_identity ADD location text")  # where it was when it was marked
    op.execute(f"""
    WITH own AS ({OWN})
    UPDATE store_identity SET location = (SELECT min(root) FROM own)
    WHERE (SELECT count(DISTINCT root) FROM own) = 1""")
    op.execute(f"""
    WITH own AS ({OWN})
    UPDATE descriptor_sets SET path = own.key FROM own, store_identity
    WHERE own.root = store_identity.location AND own.video_id = descriptor_sets.video_id
      AND own.fingerprint = descriptor_sets.fingerprint""")


def downgrade() -> None:
    op.execute("""
    UPDATE descriptor_sets SET path = location || '/' || path FROM store_identity
    WHERE NOT starts_with(path, '/') AND position('://' IN path) = 0 AND location IS NOT NULL;
    ALTER TABLE store_identity DROP COLUMN location;
    """)
