"""Who changed which rule, which uploads follow it by now, and every version of a policy."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    -- A change of a rule. Its number is the version of the rules; uploads are settled under it one
    -- after the other, in the order of their ids.
    CREATE TABLE rule_changes (
        id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at            timestamptz NOT NULL DEFAULT now(),
        actor         text NOT NULL,
        what          text NOT NULL,
        asset_ids     bigint[] NOT NULL DEFAULT '{}', -- whose matches it touches
        reference_id  text REFERENCES videos,
        uploader      text,
        query_ids     text[] NOT NULL DEFAULT '{}',
        settled_to    text NOT NULL DEFAULT '', -- uploads up to this id follow it
        moved_at      timestamptz NOT NULL DEFAULT now(), -- when it came so far
        settled_at    timestamptz               -- all do
    );
    CREATE INDEX rule_changes_unsettled ON rule_changes (id) WHERE settled_at IS NULL;
    ALTER TABLE claim_events ADD change_id bigint REFERENCES rule_changes;
    CREATE INDEX claim_events_by_change ON claim_events (change_id) WHERE change_id IS NOT NULL;

    CREATE TABLE policy_versions (
        policy_id   bigint NOT NULL REFERENCES policies ON DELETE CASCADE,
        version     integer NOT NULL,
        author      text NOT NULL,
        created_at  timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (policy_id, version)
    );
    INSERT INTO policy_versions (policy_id, version, author, created_at)
        SELECT id, 1, 'unknown', created_at FROM policies;
    ALTER TABLE policies ADD version integer NOT NULL DEFAULT 1;
    ALTER TABLE policy_rules ADD version integer NOT NULL DEFAULT 1;
    ALTER TABLE policy_rules ALTER version DROP DEFAULT,
        DROP CONSTRAINT policy_rules_pkey, ADD PRIMARY KEY (policy_id, version, position),
        ADD FOREIGN KEY (policy_id, version) REFERENCES policy_versions ON DELETE CASCADE;
    -- By which version of whose policy a claim does what it does there.
    ALTER TABLE claim_territories ADD policy_id bigint, ADD policy_version integer,
        ADD FOREIGN KEY (policy_id, policy_version) REFERENCES policy_versions;
    UPDATE claim_territories SET policy_id = claims.policy_id, policy_version = 1
        FROM claims
        WHERE claims.id = claim_territories.claim_id AND claims.policy_id IS NOT NULL
          AND claims.action = claim_territories.action;
    """)


def downgrade() -> None:
    op.execute("""
    ALTER TABLE claim_territories DROP policy_id, DROP policy_version;
    DELETE FROM policy_rules USING policies
        WHERE policies.id = policy_rules.policy_id AND policy_rules.version < policies.version;
    ALTER TABLE policy_rules DROP CONSTRAINT policy_rules_pkey, DROP version;
    ALTER TABLE policy_rules ADD PRIMARY KEY (policy_id, position);
    ALTER TABLE policies DROP version;
    DROP TABLE policy_versions;
    ALTER TABLE claim_events DROP change_id;
    DROP TABLE rule_changes;
    """)
