"""What searches found, for a program that enqueued them: wait for one, read its segments.

In: a search's id. Out: its state at the end; its segments, as the view `search_segments` has them.
The view is a contract of SQL, so nothing of the plugin is imported.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from retrieval.database import transaction
from retrieval.process import process_database
from retrieval.records import Search
from retrieval.settings import load_settings
from retrieval.work.searches import read_search, wait_for_search


def wait_search(search_id: str, timeout: float | None = None) -> Search:
    """The search once it is at its end: `done`, `incomplete`, `failed` or `cancelled`.

    `Refused` with the code `timeout` if it is not after so many seconds.
    """
    patience = load_settings().service_timeout
    return wait_for_search(process_database(), search_id, timeout, outage=patience)


def read_segments(search_id: str) -> list[dict[str, Any]]:
    """Every segment that a search found, claimed or not, in the order of the query."""
    with transaction(process_database()) as connection:
        read_search(connection, search_id)  # one that does not exist is an error
        rows = connection.execute(
            text("""
            SELECT * FROM search_segments WHERE search_id = :search
            ORDER BY query_start, segment_id"""),
            {"search": search_id},
        )
        return [dict(row) for row in rows.mappings()]
