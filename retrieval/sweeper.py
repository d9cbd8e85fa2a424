"""Finds work that got lost between the database and the broker, and sends it again.

In: a database, and whether a queue is empty. Out: messages to send.
Called every few seconds by the `retrieval.sweep` task of any worker; one sweeps at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, Engine, text

from retrieval import leases, searches
from retrieval.database import transaction
from retrieval.engine import LOCALIZE, Message
from retrieval.settings import Settings

_SWEEP_LOCK = 7340003
MOST_RESENT = 1000  # per kind and sweep; the next sweep goes on


def sweep(
    database: Engine, settings: Settings, queue_is_empty: Callable[[str], bool]
) -> list[Message]:
    """One round: free silent leases, close hopeless rows, and name what must be sent again.

    A row that waits is normally a message in the broker. It counts as lost when its attempt ended
    (`sent_at` is empty), or when it was sent a lease ago and the queue holds nothing any more.
    A message sent twice does no harm: the lease lets one worker have the row.
    """
    with transaction(database) as connection:
        lock = text("SELECT pg_try_advisory_xact_lock(:lock)")
        if not connection.execute(lock, {"lock": _SWEEP_LOCK}).scalar():
            return []
        for table in ("videos", "searches"):
            leases.expire(connection, table, settings.max_attempts)
        given_up = leases.expire(connection, "pairs", settings.max_attempts)
        searches.count_down(connection, given_up)
        searches.recount(connection)
        return [
            *_lost(connection, "videos", "retrieval.ingest", settings, queue_is_empty),
            *_lost(connection, "searches", "retrieval.search", settings, queue_is_empty),
            *_lost_pairs(connection, settings, queue_is_empty),
        ]


def _lost(
    connection: Connection,
    table: str,
    task: str,
    settings: Settings,
    queue_is_empty: Callable[[str], bool],
) -> list[Message]:
    argument = {"videos": "video_id", "searches": "search_id"}[table]
    ids = _mark_sent(connection, table, settings, queue_is_empty(task))
    return [Message(task, {argument: each}) for each in ids]


def _lost_pairs(
    connection: Connection, settings: Settings, queue_is_empty: Callable[[str], bool]
) -> list[Message]:
    """One message a pair: if one of a batch kills its worker, the others go on without it."""
    ids = _mark_sent(connection, "pairs", settings, queue_is_empty(LOCALIZE))
    rows = connection.execute(
        text("SELECT id, query_id, reference_id FROM pairs WHERE id = ANY(:ids) ORDER BY id"),
        {"ids": ids},
    )
    return [
        Message(LOCALIZE, {"query_id": row.query_id, "reference_ids": [row.reference_id]})
        for row in rows
    ]


def _mark_sent(
    connection: Connection, table: str, settings: Settings, queue_is_empty: bool
) -> list[str]:
    rows = connection.execute(
        text(f"""
        UPDATE {table} SET sent_at = now() WHERE id IN (
            SELECT id FROM {table} WHERE status = 'waiting'
               AND (sent_at IS NULL
                    OR (:empty AND sent_at < now() - make_interval(secs => :seconds)))
            ORDER BY id LIMIT :most FOR UPDATE SKIP LOCKED)
        RETURNING id"""),
        {"empty": queue_is_empty, "seconds": settings.lease_seconds, "most": MOST_RESENT},
    )
    return [row.id for row in rows]
