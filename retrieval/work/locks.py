"""Advisory locks: every key that either package takes in PostgreSQL, named once.

In: a connection, a lock, and for some what is locked. Out: a lock that ends with the transaction.
Two of the same number would make strangers wait for each other, so a new lock is a line of `Lock`.
"""

from __future__ import annotations

from enum import IntEnum, unique

from sqlalchemy import Connection, text


@unique
class Lock(IntEnum):
    """The first half of a key; the second says which query, reference, owner or index."""

    MIGRATE = 7340001  # two `vcl migrate` at once would race on the version table
    CHANGES = 7340002  # the log of the indexes: its order is the order of commits
    SWEEP = 7340003  # one sweeps at a time
    OPEN_PAIRS = 7340004  # of one query: two searches would make its pairs in two orders
    REFERENCE_RULES = 7340005  # about one reference, see vcl_plugin/claims/turns.py
    OWNER_RULES = 7340006  # of one owner, or of everybody
    INDEX = 7340007  # one process at a time changes an index that machines share


def take(connection: Connection, lock: Lock, what: str | None = None) -> None:
    """Wait for the lock, or for that of `what` alone."""
    if what is None:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": lock})
    else:
        connection.execute(
            text("SELECT pg_advisory_xact_lock(:lock, hashtext(:what))"),
            {"lock": lock, "what": what},
        )


def try_take(connection: Connection, lock: Lock) -> bool:
    """Take the lock if nobody has it."""
    found = connection.execute(
        text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": lock}
    ).scalar_one()
    return bool(found)


def take_content(connection: Connection, content_hash: str) -> None:
    """Wait for whoever registers the same file. Its key is 64 bits of the hash, without a name."""
    connection.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:hash, 0))"), {"hash": content_hash}
    )
