"""Turns: every lock that either package takes in PostgreSQL, named once.

In: a connection, a lock, and for some what is locked. Out: a lock that ends with the transaction.
A lock is an empty table of the schema `turns`, locked as a whole. Advisory locks would be simpler,
but everybody who may connect can take any of those, and so stop all workers; a table can be locked
by its owner's role alone. What is locked by name shares a few tables: whoever meets a
stranger there waits for a moment.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from enum import Enum

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

MIGRATE = 7340001  # two `vcl migrate` at once would race on the version table
SLOTS = 8  # tables of a lock that is taken by name
_IS_TAKEN = "55P03"


class Lock(Enum):
    """The table, or the first part of its name; a new one is a migration."""

    CHANGES = "changes"  # the log of the indexes: its order is the order of commits
    SWEEP = "sweep"  # one sweeps at a time
    PAIRS = "pairs"  # of one query: two searches would make its pairs in two orders
    CONTENT = "contents"  # of one file: two would register it at once
    REFERENCE_RULES = "reference_rules"  # about one reference, see vcl_plugin/claims/turns.py
    COMMON_RULES = "common_rules"  # of everybody
    OWNER_RULES = "owner_rules"  # of one owner
    INDEX = "indexes"  # one process at a time changes an index that machines share
    BUILD = "builds"  # one process at a time makes such an index anew

    @property
    def is_named(self) -> bool:
        return self not in (Lock.CHANGES, Lock.SWEEP, Lock.COMMON_RULES)


def name_table(lock: Lock, what: str | None = None) -> str:
    """The table of that lock.

    >>> name_table(Lock.SWEEP), name_table(Lock.PAIRS, "some query")
    ('turns.sweep', 'turns.pairs_0')
    """
    if lock.is_named != (what is not None):
        raise ValueError(f"{lock} is taken {'by' if lock.is_named else 'without a'} name")
    if what is None:
        return f"turns.{lock.value}"
    return f"turns.{lock.value}_{zlib.crc32(what.encode()) % SLOTS:x}"


def take(connection: Connection, lock: Lock, *whats: str) -> None:
    """Wait for the lock, or for that of each of `whats`, and let nobody else have it."""
    _lock(connection, _name_tables(lock, whats), "EXCLUSIVE")


def share(connection: Connection, *tables: str) -> None:
    """Wait until nobody has these locks alone, and let nobody. Their order is as they are given."""
    _lock(connection, tables, "ROW SHARE")


def try_take(connection: Connection, lock: Lock, *whats: str) -> bool:
    """Take the lock if nobody has it."""
    attempt = connection.begin_nested()
    try:
        _lock(connection, _name_tables(lock, whats), "EXCLUSIVE", "NOWAIT")
    except OperationalError as error:
        attempt.rollback()
        if getattr(error.orig, "pgcode", None) != _IS_TAKEN:
            raise
        return False
    attempt.commit()
    return True


def take_migration(connection: Connection) -> None:
    """Wait for another `vcl migrate`. An advisory lock: at first there is no table to lock."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATE})


def _name_tables(lock: Lock, whats: Sequence[str]) -> Sequence[str]:
    """In the order in which everybody takes them, so that nobody waits in a circle."""
    return sorted({name_table(lock, each) for each in whats}) if whats else [name_table(lock)]


def _lock(connection: Connection, tables: Sequence[str], mode: str, wait: str = "") -> None:
    names = ", ".join(tables)
    connection.execute(text(f"LOCK TABLE {names} IN {mode} MODE {wait}"))
