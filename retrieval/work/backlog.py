"""The backlog: how many videos, searches and pairs there are, by how far they are.

In: a connection. Out: numbers, for `vcl status`.
"""

from __future__ import annotations

from sqlalchemy import Connection, text


def count_work(connection: Connection) -> dict[str, float]:
    """Every count by its name, in the order in which a person reads them."""
    row = connection.execute(
        text("""
        SELECT (SELECT count(*) FROM videos) AS videos,
               (SELECT count(*) FROM videos WHERE is_reference) AS references,
               (SELECT count(*) FROM videos WHERE status = 'failed') AS videos_failed,
               (SELECT count(*) FROM searches WHERE status IN ('waiting', 'running', 'localizing'))
                   AS searches_open,
               (SELECT count(*) FROM searches WHERE status = 'incomplete') AS searches_incomplete,
               (SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float
                FROM searches WHERE status IN ('waiting', 'running', 'localizing'))
                   AS oldest_search_seconds,
               count(*) FILTER (WHERE status = 'waiting') AS pairs_waiting,
               count(*) FILTER (WHERE status = 'running') AS pairs_running,
               count(*) FILTER (WHERE status = 'done') AS pairs_done,
               count(*) FILTER (WHERE status = 'quarantined') AS pairs_quarantined
        FROM pairs""")
    )
    return dict(row.mappings().one())
