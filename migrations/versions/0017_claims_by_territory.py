"""What a claim does in which territory, as a view: `claim_action` names only the strictest."""

from alembic import op

revision = "0017"
down_revision = "0016"
runs_since = "0016"  # only a view more
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE VIEW claims_by_territory AS
    SELECT claims.id                        AS claim_id,
           claims.status                    AS claim_status,
           coalesce(places.territory, 'WW') AS territory,
           coalesce(places.action, claims.action) AS action,
           policies.name                    AS policy,
           places.policy_version            AS policy_version,
           policy_versions.author           AS policy_author,
           owners.name                      AS owner,
           assets.title                     AS asset,
           claims.query_id                  AS query_id,
           query.title                      AS query,
           claims.created_at                AS raised_at
    FROM claims
    LEFT JOIN claim_territories AS places ON places.claim_id = claims.id
    LEFT JOIN policies ON policies.id = places.policy_id
    LEFT JOIN policy_versions ON policy_versions.policy_id = places.policy_id
                             AND policy_versions.version = places.policy_version
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos AS query ON query.id = claims.query_id
    WHERE claims.status NOT IN ('released', 'expired');
    """)


def downgrade() -> None:
    op.execute("DROP VIEW claims_by_territory")
