"""Deliveries: each event for each webhook that asked for it, until it arrived or is dead.

In: rows that triggers wrote in the transaction of what they tell. Out: messages to send, and what
became of them. A delivery that is taken is due again a lease later, so one whose sender died is
sent by another: at least once, never lost. Each function is one step of the caller's transaction.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from retrieval.errors import NotFound, Refused
from retrieval.paging import MOST, Page, cut_page, read_cursor
from vcl_plugin.reports.cells import plain
from vcl_plugin.webhooks.registry import read_webhook
from vcl_plugin.webhooks.sending import Answer
from vcl_plugin.webhooks.signing import name_message

LEASE_SECONDS = 60.0  # longer than an attempt may take
# Pauses after failed attempts, as Standard Webhooks proposes; after the last of them it is dead.
PAUSES = (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
STATUSES = ("waiting", "delivered", "dead")
TEST = "webhook.test"
KEPT_DAYS = 30  # of what arrived


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event on its way to a webhook."""

    id: int
    webhook_id: int
    event: str
    at: datetime  # when it happened
    claim_id: int | None
    search_id: str | None
    status: str
    attempts: int
    due_at: datetime | None  # of the next attempt
    answer: str | None  # to the last attempt
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True)
class Parcel:
    """A delivery that was taken, with all that an attempt needs."""

    delivery_id: int
    attempt: int
    url: str
    secret: str
    message_id: str
    body: bytes


def list_due(connection: Connection) -> list[int]:
    """The webhooks for which something is to be sent now."""
    found = connection.execute(
        text("""
        SELECT id FROM webhooks WHERE removed_at IS NULL AND EXISTS (
            SELECT 1 FROM webhook_deliveries
            WHERE webhook_id = webhooks.id AND status = 'waiting' AND due_at <= now())
        ORDER BY id""")
    )
    return list(found.scalars())


def take_delivery(
    connection: Connection, webhook_id: int, delivery_id: int | None = None
) -> Parcel | None:
    """Take what is due for a webhook, the oldest first, or that delivery; None: nothing is.

    What another sender has in hand is passed over.
    """
    row = connection.execute(
        text("""
        UPDATE webhook_deliveries AS taken
        SET attempts = attempts + 1, due_at = now() + make_interval(secs => :lease)
        FROM webhooks, webhook_events
        WHERE taken.id = (
            SELECT id FROM webhook_deliveries
            WHERE webhook_id = :webhook AND status = 'waiting' AND due_at <= now()
              AND id = coalesce(:delivery, id)
            ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
          AND webhooks.id = taken.webhook_id AND webhooks.removed_at IS NULL
          AND webhook_events.id = taken.event_id
        RETURNING taken.id, taken.attempts, webhooks.url, webhooks.secret, webhook_events.type,
                  webhook_events.at, webhook_events.id AS event_id, webhook_events.claim_event,
                  webhook_events.search_id"""),
        {"webhook": webhook_id, "delivery": delivery_id, "lease": LEASE_SECONDS},
    ).first()
    if row is None:
        return None
    data = _read_data(connection, row)
    told = {"type": row.type, "timestamp": row.at.isoformat(), "data": data}
    body = json.dumps(told, default=plain, ensure_ascii=False).encode("utf-8", "replace")
    message_id = name_message(row.secret, row.event_id)
    return Parcel(row.id, row.attempts, row.url, row.secret, message_id, body)


def note_answer(connection: Connection, parcel: Parcel, answer: Answer) -> None:
    """Write what became of an attempt, unless another sender took the delivery meanwhile."""
    is_last = answer.is_hopeless or parcel.attempt > len(PAUSES)
    # Not all at the same second, should many have failed at once.
    pause = PAUSES[min(parcel.attempt, len(PAUSES)) - 1] * (1 + secrets.randbelow(200) / 1000)
    status = "delivered" if answer.is_good else "dead" if is_last else "waiting"
    connection.execute(
        text("""
        UPDATE webhook_deliveries SET status = :status, answer = :answer,
               due_at = now() + make_interval(secs => :pause),
               delivered_at = CASE WHEN :status = 'delivered' THEN now() END
        WHERE id = :id AND attempts = :attempt AND status = 'waiting'"""),
        {
            **{"id": parcel.delivery_id, "attempt": parcel.attempt, "status": status},
            **{"answer": answer.said, "pause": pause},
        },
    )


def ask_test(
    connection: Connection, webhook_id: int, owners: Collection[str] | None = None
) -> Delivery:
    """Let a webhook be told of nothing but that it is there."""
    read_webhook(connection, webhook_id, owners)
    delivery_id = connection.execute(
        text("""
        WITH told AS (INSERT INTO webhook_events (type) VALUES (:type) RETURNING id)
        INSERT INTO webhook_deliveries (webhook_id, event_id) SELECT :webhook, id FROM told
        RETURNING id"""),
        {"type": TEST, "webhook": webhook_id},
    ).scalar_one()
    return read_delivery(connection, webhook_id, delivery_id)


def resend(
    connection: Connection,
    webhook_id: int,
    delivery_id: int | None = None,
    owners: Collection[str] | None = None,
) -> int:
    """Send a delivery once more, whatever became of it, or all dead ones; returns how many."""
    read_webhook(connection, webhook_id, owners)
    sent = connection.execute(
        text("""
        UPDATE webhook_deliveries SET status = 'waiting', attempts = 0, due_at = now(),
               delivered_at = NULL
        WHERE webhook_id = :webhook AND id = coalesce(:delivery, id)
          AND (status = 'dead' OR CAST(:delivery AS bigint) IS NOT NULL)"""),
        {"webhook": webhook_id, "delivery": delivery_id},
    ).rowcount
    if not sent and delivery_id is not None:
        raise _missing(webhook_id, delivery_id)
    return sent


def list_deliveries(
    connection: Connection,
    webhook_id: int,
    status: str | None = None,
    owners: Collection[str] | None = None,
    limit: int = 50,
    after: str | None = None,
) -> Page[Delivery]:
    """A page of what was sent to a webhook or is to be sent, the newest first."""
    read_webhook(connection, webhook_id, owners)
    if status is not None and status not in STATUSES:
        raise Refused(f"{status!r} is none of {', '.join(STATUSES)}", code="bad_filter")
    limit = max(1, min(limit, MOST))
    [last] = read_cursor(after, "deliveries", int)
    found = _read(connection, webhook_id, None, status, last, limit + 1)
    return cut_page(found, limit, "deliveries", lambda each: [each.id])


def read_delivery(connection: Connection, webhook_id: int, delivery_id: int) -> Delivery:
    found = _read(connection, webhook_id, delivery_id, None, None, 1)
    if not found:
        raise _missing(webhook_id, delivery_id)
    return found[0]


def forget_delivered(connection: Connection) -> None:
    """Drop what arrived long ago, and events of which nothing is left."""
    values = {"days": KEPT_DAYS}
    connection.execute(
        text("""
        DELETE FROM webhook_deliveries
        WHERE status = 'delivered' AND delivered_at < now() - make_interval(days => :days)"""),
        values,
    )
    connection.execute(
        text("""
        DELETE FROM webhook_events WHERE at < now() - make_interval(days => :days)
           AND NOT EXISTS (SELECT 1 FROM webhook_deliveries WHERE event_id = webhook_events.id)"""),
        values,
    )


def _read(
    connection: Connection,
    webhook_id: int,
    delivery_id: int | None,
    status: str | None,
    last: int | None,
    limit: int,
) -> list[Delivery]:
    rows = connection.execute(
        text("""
        SELECT sent.id, sent.webhook_id, webhook_events.type AS event, webhook_events.at,
               (SELECT claim_id FROM claim_events WHERE id = webhook_events.claim_event)
                   AS claim_id, webhook_events.search_id, sent.status, sent.attempts,
               CASE WHEN sent.status = 'waiting' THEN sent.due_at END AS due_at, sent.answer,
               sent.delivered_at
        FROM webhook_deliveries AS sent JOIN webhook_events ON webhook_events.id = sent.event_id
        WHERE sent.webhook_id = :webhook
          AND (CAST(:delivery AS bigint) IS NULL OR sent.id = :delivery)
          AND (CAST(:status AS text) IS NULL OR sent.status = :status)
          AND (CAST(:last AS bigint) IS NULL OR sent.id < :last)
        ORDER BY sent.id DESC LIMIT :limit"""),
        {
            **{"webhook": webhook_id, "delivery": delivery_id, "status": status},
            **{"last": last, "limit": limit},
        },
    )
    return [Delivery(**row) for row in rows.mappings()]


def _read_data(connection: Connection, event: Any) -> dict[str, Any]:
    """What an event is about: the change as it was, what the claim rests on as it is now."""
    if event.claim_event is not None:
        statement, key = _CLAIM, event.claim_event
    elif event.search_id is not None:
        statement, key = _SEARCH, event.search_id
    else:
        return {"message": "this webhook works"}
    row = connection.execute(statement, {"id": key}).mappings().first()
    return {} if row is None else dict(row)


_CLAIM = text("""
    SELECT claim_events.claim_id, claim_events.from_status, claim_events.to_status AS status,
           claim_events.reason, claim_events.at, owners.name AS owner, claims.asset_id,
           assets.title AS asset, claims.query_id, videos.title AS query, uploads.uploader,
           uploads.external_id, uploads.url, claims.action, claims.seconds, claims.score
    FROM claim_events JOIN claims ON claims.id = claim_id
    JOIN assets ON assets.id = claims.asset_id JOIN owners ON owners.id = assets.owner_id
    JOIN videos ON videos.id = claims.query_id
    LEFT JOIN uploads ON uploads.id = claims.upload_id
    WHERE claim_events.id = :id""")
_SEARCH = text("""
    SELECT searches.id AS search_id, searches.status, searches.reason, searches.message,
           searches.query_id, videos.title AS query, searches.pairs_total, searches.pairs_left,
           searches.finished_at
    FROM searches JOIN videos ON videos.id = searches.query_id WHERE searches.id = :id""")


def _missing(webhook_id: int, delivery_id: int) -> NotFound:
    return NotFound(
        f"webhook {webhook_id} has no delivery {delivery_id}; "
        f"`vcl webhook deliveries {webhook_id}` shows them all"
    )
