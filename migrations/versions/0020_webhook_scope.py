"""Whoever asked for a search is told of its end, by a webhook of some owners, too."""

from alembic import op

revision = "0020"
down_revision = "0019"
runs_since = "0019"  # a function and an index
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE OR REPLACE FUNCTION tell_webhooks(kind text, event bigint, search text, owner bigint)
        RETURNS void LANGUAGE plpgsql AS $$
        DECLARE listeners bigint[]; told bigint;
        BEGIN
            -- A claim is its owner's; a search is that of whoever asked for it.
            SELECT array_agg(id) INTO listeners FROM webhooks
            WHERE removed_at IS NULL AND kind = ANY(events)
              AND (NOT is_scoped OR owner = ANY(owner_ids)
                   OR created_by = (SELECT asked_by FROM searches WHERE id = search));
            IF listeners IS NULL THEN
                RETURN;
            END IF;
            INSERT INTO webhook_events (type, claim_event, search_id, owner_id)
            VALUES (kind, event, search, owner) RETURNING id INTO told;
            INSERT INTO webhook_deliveries (webhook_id, event_id)
            SELECT unnest(listeners), told;
        END $$;
    CREATE INDEX webhook_deliveries_by_event ON webhook_deliveries (event_id);
    """)


def downgrade() -> None:
    op.execute("""
    DROP INDEX webhook_deliveries_by_event;
    CREATE OR REPLACE FUNCTION tell_webhooks(kind text, event bigint, search text, owner bigint)
        RETURNS void LANGUAGE plpgsql AS $$
        DECLARE told bigint;
        BEGIN
            IF NOT EXISTS (SELECT 1 FROM webhooks WHERE removed_at IS NULL
                           AND kind = ANY(events)
                           AND (NOT is_scoped OR owner = ANY(owner_ids))) THEN
                RETURN;
            END IF;
            INSERT INTO webhook_events (type, claim_event, search_id, owner_id)
            VALUES (kind, event, search, owner) RETURNING id INTO told;
            INSERT INTO webhook_deliveries (webhook_id, event_id)
            SELECT id, told FROM webhooks WHERE removed_at IS NULL AND kind = ANY(events)
               AND (NOT is_scoped OR owner = ANY(owner_ids));
        END $$;
    """)
