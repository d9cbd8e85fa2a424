"""Rows for tests of the database: videos, searches and pairs in a chosen state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, text

from retrieval.records import Candidate
from retrieval.work import catalogue, leases, pairs, searches

METHOD = pairs.Method("tn-test", "lite0-test")


def plant_videos(connection: Connection, *names: str) -> None:
    for name in names:
        catalogue.register_foreign(connection, name, None, duration=60.0)


def plant_search(
    connection: Connection, query: str, references: Sequence[str], search_id: str | None = None
) -> str:
    """A planned search: its pairs are open and wait."""
    search = searches.create_search(connection, query, search_id)
    candidates = [
        Candidate(query, each, rank, 0.5) for rank, each in enumerate(references, start=1)
    ]
    pairs.open_pairs(connection, search, candidates, METHOD)
    return search


def set_aside(connection: Connection, pair_id: int, code: str, message: str) -> None:
    """What a worker does with a pair that no attempt can help."""
    leases.acquire(connection, leases.Table.PAIRS, [pair_id], "w", 60)
    pairs.quarantine_pair(connection, pair_id, "w", code, message)


def read_pairs(connection: Connection) -> list[Any]:
    return list(connection.execute(text("SELECT * FROM pairs ORDER BY reference_id")))


def read_row(connection: Connection, table: str, row_id: Any) -> Any:
    return connection.execute(text(f"SELECT * FROM {table} WHERE id = :id"), {"id": row_id}).one()


def pass_time(database: Engine, table: str, seconds: float) -> None:
    """Let every lease and every sending of a table be so much older."""
    with database.begin() as connection:
        connection.execute(
            text(f"""
            UPDATE {table} SET lease_until = lease_until - make_interval(secs => :seconds),
                               sent_at = sent_at - make_interval(secs => :seconds)"""),
            {"seconds": seconds},
        )
