"""The webhooks that there are: an address, a secret, which events, and whose claims.

In: an address that somebody gives. Out: rows in `webhooks`; the secret, once.
Every read takes the owners that the reader may see; None: all. A webhook of other owners is not
there. Each function is one step of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, text

from retrieval.errors import NotFound, Refused
from vcl_plugin.claims.rights import find_owner
from vcl_plugin.webhooks.addresses import Resolve, find_targets, read_address, resolve_host
from vcl_plugin.webhooks.signing import make_secret

EVENTS = {
    "claim.raised": "a claim was raised, or raised again",
    "claim.changed": "a claim moved to another status, or its evidence changed",
    "search.finished": "a search is done, incomplete, failed or cancelled",
}
MOST = 100  # webhooks at once: each has a thread where something waits for it


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that is told of events; without its secret."""

    id: int
    url: str
    events: list[str]
    owners: list[str] | None  # None: all
    created_by: str
    created_at: datetime
    waiting: int
    dead: int


def add_webhook(
    connection: Connection,
    url: str,
    created_by: str,
    events: Collection[str] = (),
    owners: Collection[str] | None = None,
    allows_private: bool = False,
    resolve: Resolve = resolve_host,
) -> tuple[Webhook, str]:
    """Let an address be told of events, all kinds if none is named; the secret is shown once."""
    find_targets(read_address(url), allows_private, resolve)
    unknown = sorted(set(events) - set(EVENTS))
    if unknown:
        raise Refused(f"{unknown[0]!r} is no event; use {', '.join(EVENTS)}", code="bad_event")
    if owners is not None and not owners:
        raise Refused("a webhook for no owner would be told of nothing; name owners, or none")
    ids = None if owners is None else [find_owner(connection, each) for each in sorted(set(owners))]
    there_are = connection.execute(text("SELECT count(*) FROM webhooks WHERE removed_at IS NULL"))
    if there_are.scalar_one() >= MOST:
        raise Refused(f"there are {MOST} webhooks already; remove one with `vcl webhook remove`")
    secret = make_secret()
    webhook_id = connection.execute(
        text("""
        INSERT INTO webhooks (url, secret, events, is_scoped, owner_ids, created_by)
        VALUES (:url, :secret, :events, :is_scoped, :owners, :by) RETURNING id"""),
        {
            **{"url": url, "secret": secret, "by": created_by, "owners": ids or []},
            **{"events": sorted(set(events)) or list(EVENTS), "is_scoped": ids is not None},
        },
    ).scalar_one()
    return read_webhook(connection, webhook_id), secret


def list_webhooks(connection: Connection, owners: Collection[str] | None = None) -> list[Webhook]:
    """The webhooks that were not removed; with owners, those that are told of nobody else's."""
    return [_webhook(row) for row in _find(connection, None, owners)]


def read_webhook(
    connection: Connection, webhook_id: int, owners: Collection[str] | None = None
) -> Webhook:
    found = _find(connection, webhook_id, owners)
    if not found:
        raise NotFound(f"there is no webhook {webhook_id}; `vcl webhook list` shows them all")
    return _webhook(found[0])


def remove_webhook(
    connection: Connection, webhook_id: int, owners: Collection[str] | None = None
) -> None:
    """Tell an address nothing more; what waited for it is dropped, and its secret forgotten."""
    read_webhook(connection, webhook_id, owners)
    connection.execute(
        text("UPDATE webhooks SET removed_at = now(), secret = '' WHERE id = :id"),
        {"id": webhook_id},
    )
    connection.execute(
        text("DELETE FROM webhook_deliveries WHERE webhook_id = :id AND status = 'waiting'"),
        {"id": webhook_id},
    )


def _find(
    connection: Connection, webhook_id: int | None, owners: Collection[str] | None
) -> list[RowMapping]:
    rows = connection.execute(
        text("""
        WITH known AS (
            SELECT webhooks.*, CASE WHEN is_scoped THEN array(
                SELECT name FROM owners WHERE id = ANY(owner_ids) ORDER BY name) END AS owners
            FROM webhooks WHERE removed_at IS NULL AND id = coalesce(:id, id))
        SELECT id, url, events, owners, created_by, created_at,
               (SELECT count(*) FROM webhook_deliveries
                WHERE webhook_id = known.id AND status = 'waiting') AS waiting,
               (SELECT count(*) FROM webhook_deliveries
                WHERE webhook_id = known.id AND status = 'dead') AS dead
        FROM known
        WHERE CAST(:owners AS text[]) IS NULL OR owners <@ CAST(:owners AS text[])
        ORDER BY id"""),
        {"id": webhook_id, "owners": None if owners is None else sorted(owners)},
    )
    return list(rows.mappings())


def _webhook(row: RowMapping) -> Webhook:
    values: dict[str, Any] = dict(row)
    return Webhook(**values)
