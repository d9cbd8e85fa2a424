"""Who works on which row, and until when: leases on videos, searches and pairs.

In: row ids and a holder's token. Out: the rows the holder got.
Time is the database's, so a worker whose clock is wrong neither steals nor keeps a lease.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from retrieval.database import transaction
from retrieval.errors import RetrievalError, ServiceUnavailable

log = logging.getLogger(__name__)


class Table(StrEnum):
    """The tables whose rows are leased. Nobody else lists them."""

    VIDEOS = "videos"
    SEARCHES = "searches"
    PAIRS = "pairs"


# What becomes of a row when its attempts are used up.
GIVEN_UP = {
    Table.VIDEOS: "status = 'failed'",
    Table.SEARCHES: "status = 'failed', finished_at = now()",
    Table.PAIRS: "status = 'quarantined', finished_at = now()",
}


_STOPPED = "'the worker ' || leased_by || ' stopped before it was done'"


def new_holder() -> str:
    """A token for one piece of work; a second attempt by the same process is another holder."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def acquire(
    connection: Connection,
    table: Table,
    ids: Sequence[Any],
    holder: str,
    seconds: float,
    max_attempts: int | None = None,
) -> list[Any]:
    """Take those of the rows that wait; the others are somebody's, or done.

    With `max_attempts`, a row that was given back after its last one is left to `give_up`: a
    message that comes twice would try it once more.

    A row whose lease ran out waits only after `expire`, which counts its attempts: taken here, a
    pair that kills its worker could be tried without end. A row that a transaction holds at this
    moment is waited for, not passed over: the message that asks for it may be the only one.
    Everybody locks rows in the order of their ids.
    """
    rows = connection.execute(
        text(f"""
        UPDATE {Table(table)} SET status = 'running', attempts = attempts + 1,
               leased_by = :holder, lease_until = now() + make_interval(secs => :seconds)
        WHERE id IN (
            SELECT id FROM {table} WHERE id = ANY(:ids) AND status = 'waiting'
               AND attempts < coalesce(CAST(:most AS integer), attempts + 1)
            ORDER BY id FOR UPDATE)
        RETURNING id"""),
        {"ids": list(ids), "holder": holder, "seconds": seconds, "most": max_attempts},
    )
    taken = {row.id for row in rows}
    return [each for each in ids if each in taken]


def holds(connection: Connection, table: Table, row_id: Any, holder: str) -> bool:
    """Whether the holder still has the row; locks it until the transaction ends."""
    return (
        connection.execute(
            text(f"""
            SELECT 1 FROM {Table(table)}
            WHERE id = :id AND leased_by = :holder AND status = 'running' FOR UPDATE"""),
            {"id": row_id, "holder": holder},
        ).first()
        is not None
    )


def give_back(
    connection: Connection,
    table: Table,
    row_id: Any,
    holder: str,
    code: str,
    message: str,
    counts: bool = True,
) -> None:
    """End a failed attempt: the row waits again, and remembers why.

    What is not the row's fault does not count.
    """
    connection.execute(
        text(f"""
        UPDATE {Table(table)} SET status = 'waiting', leased_by = NULL, lease_until = NULL,
               sent_at = NULL, reason = :code, message = :message,
               attempts = attempts - CASE WHEN :counts THEN 0 ELSE 1 END
        WHERE id = :id AND leased_by = :holder AND status = 'running'"""),
        {"id": row_id, "holder": holder, "code": code, "message": message, "counts": counts},
    )


def put_off(
    connection: Connection, table: Table, row_id: Any, holder: str, code: str, message: str
) -> None:
    """End an attempt that does not count: something is away that the row needs.

    Its message tries again by itself, with growing pauses.
    """
    connection.execute(
        text(f"""
        UPDATE {Table(table)} SET status = 'waiting', leased_by = NULL, lease_until = NULL,
               attempts = attempts - 1, sent_at = now(), reason = :code, message = :message
        WHERE id = :id AND leased_by = :holder AND status = 'running'"""),
        {"id": row_id, "holder": holder, "code": code, "message": message},
    )


@contextmanager
def heartbeat(
    database: Engine, table: Table, ids: Sequence[Any], holder: str, seconds: float
) -> Iterator[None]:
    """Keep the leases alive while the block runs, however long it takes."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(seconds / 3):
            try:
                with transaction(database) as connection:
                    connection.execute(
                        text(f"""
                        UPDATE {Table(table)}
                        SET lease_until = now() + make_interval(secs => :seconds)
                        -- A locked row is being finished by us, or freed: waiting for it would
                        -- let the others run out.
                        WHERE id IN (
                            SELECT id FROM {table} WHERE id = ANY(:ids)
                               AND leased_by = :holder AND status = 'running'
                            ORDER BY id FOR UPDATE SKIP LOCKED)"""),
                        {"ids": list(ids), "holder": holder, "seconds": seconds},
                    )
            except (ServiceUnavailable, SQLAlchemyError):
                continue  # the next beat tries again; a lost lease only means work done twice

    thread = threading.Thread(target=beat, name="lease-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def unless_away(
    database: Engine, table: Table, ids: Sequence[Any], holder: str, seconds: float
) -> Iterator[None]:
    """Work on leased rows. If a service is away their attempt does not count; the caller hears.

    The database may itself be what is away: it is told once it is back, for as long as the leases
    last that it has not heard of since.
    """
    try:
        yield
    except ServiceUnavailable as error:
        deadline = time.monotonic() + seconds
        while True:
            try:
                with transaction(database) as connection:
                    for row_id in sorted(ids):
                        put_off(connection, table, row_id, holder, error.code, str(error))
                break
            except ServiceUnavailable:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.5)
        raise


@contextmanager
def attempt(
    database: Engine, table: Table, row_id: Any, holder: str, seconds: float
) -> Iterator[None]:
    """One attempt at a leased row, kept alive while the block runs.

    An error that the row is not to blame for ends it here, and the sweeper sends the row again. If
    a service is away the attempt does not count, and the caller hears of it.
    """
    with (
        heartbeat(database, table, [row_id], holder, seconds),
        unless_away(database, table, [row_id], holder, seconds),
    ):
        try:
            yield
        except ServiceUnavailable:
            raise
        except Exception as error:
            log.exception("an attempt at %s of %s failed", row_id, table)
            code, message = "worker_error", repr(error)
            if isinstance(error, RetrievalError):
                code, message = error.code, str(error)
            with transaction(database) as connection:
                give_back(connection, table, row_id, holder, code, message)


def expire(connection: Connection, table: Table, max_attempts: int) -> list[Any]:
    """Free the rows whose holder went silent; give up those that have no attempt left.

    Returns the ids given up, for the caller to count down what waited for them.
    """
    connection.execute(
        text(f"""
        UPDATE {Table(table)} SET status = 'waiting', leased_by = NULL, lease_until = NULL,
               sent_at = NULL, reason = 'worker_lost', message = {_STOPPED}
        WHERE id IN (
            SELECT id FROM {table}
            WHERE status = 'running' AND lease_until < now() AND attempts < :most
            ORDER BY id FOR UPDATE SKIP LOCKED)"""),
        {"most": max_attempts},
    )
    return give_up(connection, table, max_attempts)


def give_up(connection: Connection, table: Table, max_attempts: int) -> list[Any]:
    """Close the rows that used every attempt, keeping the last reason in the message."""
    rows = connection.execute(
        text(f"""
        UPDATE {Table(table)} SET {GIVEN_UP[table]}, leased_by = NULL, lease_until = NULL,
               reason = 'attempts_exhausted',
               message = attempts || ' attempts failed, the last: '
                         || CASE WHEN status = 'running' THEN {_STOPPED} ELSE message END
        WHERE id IN (
            SELECT id FROM {table} WHERE attempts >= :most
               AND (status = 'waiting' OR (status = 'running' AND lease_until < now()))
            ORDER BY id FOR UPDATE SKIP LOCKED)
        RETURNING id"""),
        {"most": max_attempts},
    )
    return [row.id for row in rows]


# One statement over all tables: a process that holds any row of any of them is at work.
_HOLDERS = " UNION ".join(
    f"SELECT leased_by FROM {table} WHERE status = 'running' AND lease_until > now()"
    for table in Table
)


def list_holders(connection: Connection) -> list[str]:
    """Processes (`host:pid`) that hold work and have shown a sign of life in time."""
    found = connection.execute(text(_HOLDERS)).scalars()
    return sorted({str(holder).rpartition(":")[0] for holder in found})
