"""Finds work that got lost between the database and the broker, and sends it again.

In: a database, and how many messages a queue holds. Out: messages to send.
Called every few seconds beside every worker (`retrieval.tasks.sweep`); one sweeps at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, text

from retrieval.database import transaction
from retrieval.settings import Settings
from retrieval.work import leases, locks, searches, unsettled
from retrieval.work.leases import Table
from retrieval.work.messages import (
    BULK,
    INGEST,
    LOCALIZE,
    SEARCH,
    URGENT,
    URGENT_PAIRS,
    Message,
)

MOST_RESENT = 1000  # per kind and sweep; the next sweep goes on
# A message may wait long in a full queue. After so many leases it is doubted all the same, or a
# queue that is never empty would hide a lost one for ever.
DOUBTFUL_LEASES = 10


def sweep(
    database: Engine, settings: Settings, count_messages: Callable[[str], int]
) -> list[Message]:
    """One round: free silent leases, close hopeless rows, and name what must be sent again.

    A row that waits is normally a message in the broker. It counts as lost when its attempt ended
    (`sent_at` is empty), when it was sent a lease ago and the queue holds nothing any more, or
    when it was sent many leases ago and the queue holds fewer messages than rows wait.
    A message sent twice does no harm: the lease lets one worker have the row.
    """
    # Asked before the transaction, so that a slow broker holds no lock.
    queued = {task: count_messages(task) for task in (INGEST, SEARCH, LOCALIZE)}
    with transaction(database) as connection:
        if not locks.try_take(connection, locks.Lock.SWEEP):
            return []
        # Pairs before searches: whoever finishes a pair locks them in that order.
        given_up = leases.expire(connection, Table.PAIRS, settings.max_attempts)
        searches.count_down(connection, given_up)
        searches.recount(connection)
        for table in (Table.SEARCHES, Table.VIDEOS):
            leases.expire(connection, table, settings.max_attempts)
        videos = _take_lost(connection, Table.VIDEOS, settings, queued[INGEST])
        planned = _take_lost(connection, Table.SEARCHES, settings, queued[SEARCH])
        return [
            *(Message(INGEST, {"video_id": each}) for each in videos),
            *(Message(SEARCH, {"search_id": each}) for each in planned),
            *_lost_pairs(connection, settings, queued[LOCALIZE]),
            *_lost_settlings(connection, settings, queued[LOCALIZE]),
        ]


_UNSENT = {
    INGEST: "UPDATE videos SET sent_at = NULL WHERE status = 'waiting' AND id = :video_id",
    SEARCH: "UPDATE searches SET sent_at = NULL WHERE status = 'waiting' AND id = :search_id",
    LOCALIZE: """UPDATE pairs SET sent_at = NULL WHERE status = 'waiting'
                 AND query_id = :query_id AND reference_id = ANY(:reference_ids)""",
}


def mark_unsent(connection: Connection, messages: Sequence[Message]) -> list[Message]:
    """The broker did not take these messages: the next sweep sends what they asked for.

    Returns those that no row stands for; nobody will send them again.
    """
    return [message for message in messages if not _mark_one(connection, message)]


def _mark_one(connection: Connection, message: Message) -> bool:
    """Whether a row stands for the message."""
    if message.arguments.get("reference_ids") == []:  # it asks for a settling and no pair
        return unsettled.note_unsent(connection, message.arguments["query_id"])
    if message.task in _UNSENT:
        connection.execute(text(_UNSENT[message.task]), message.arguments)
    return message.task in _UNSENT


def _lost_pairs(connection: Connection, settings: Settings, queued: int) -> list[Message]:
    """One message a pair: if one of a batch kills its worker, the others go on without it.

    The message that got lost took its priority along; the size of the search tells it again.
    """
    ranks = {
        URGENT: _take_lost(connection, Table.PAIRS, settings, queued, only=_OF_SMALL_SEARCHES),
        BULK: _take_lost(connection, Table.PAIRS, settings, queued),
    }
    return [
        Message(LOCALIZE, {"query_id": row.query_id, "reference_ids": [row.reference_id]}, priority)
        for priority, ids in ranks.items()
        for row in connection.execute(
            text("SELECT query_id, reference_id FROM pairs WHERE id = ANY(:ids) ORDER BY id"),
            {"ids": ids},
        )
    ]


def _lost_settlings(connection: Connection, settings: Settings, queued: int) -> list[Message]:
    lease = settings.lease_seconds
    lost = unsettled.take_lost(connection, queued, lease, DOUBTFUL_LEASES * lease, MOST_RESENT)
    return [Message(LOCALIZE, {"query_id": each, "reference_ids": []}) for each in lost]


_OF_SMALL_SEARCHES = f"""id IN (
    SELECT pair_id FROM search_pairs JOIN searches ON searches.id = search_id
    WHERE searches.status = 'localizing' AND searches.pairs_total <= {URGENT_PAIRS})"""


def _take_lost(
    connection: Connection, table: Table, settings: Settings, queued: int, only: str = "true"
) -> list[Any]:
    """Ids of rows whose message is lost, marked as sent now.

    Rows in doubt are taken only while there are fewer messages than waiting rows, so that doubting
    never makes a long queue longer and longer.
    """
    rows = connection.execute(
        text(f"""
        UPDATE {table} SET sent_at = now() WHERE id IN (
            SELECT id FROM {table} WHERE status = 'waiting' AND {only}
               AND (sent_at IS NULL
                    OR (:queued = 0 AND sent_at < now() - make_interval(secs => :lease))
                    OR (:queued < (SELECT count(*) FROM {table} WHERE status = 'waiting')
                        AND sent_at < now() - make_interval(secs => :doubtful)))
            ORDER BY sent_at NULLS FIRST, id LIMIT :most FOR UPDATE SKIP LOCKED)
        RETURNING id"""),
        {
            "queued": queued,
            "lease": settings.lease_seconds,
            "doubtful": DOUBTFUL_LEASES * settings.lease_seconds,
            "most": MOST_RESENT,
        },
    )
    return [row.id for row in rows]
