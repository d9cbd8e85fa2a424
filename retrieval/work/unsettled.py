"""Uploads that were compared before and wait only to be judged by today's rules.

In: a query whose search found its pairs done. Out: a row in `unsettled` until its claims are
settled, so that the message that asks for it can be lost and sent again.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text


def note(connection: Connection, query_id: str) -> None:
    """Its claims are to be settled; asked again meanwhile, they are settled again."""
    connection.execute(
        text("""
        INSERT INTO unsettled (query_id) VALUES (:query) ON CONFLICT (query_id)
        DO UPDATE SET asked_at = clock_timestamp(), sent_at = clock_timestamp()"""),
        {"query": query_id},
    )


def note_unsent(connection: Connection, query_id: str) -> bool:
    """The broker did not take its message: the next sweep sends it. False for an unknown query."""
    noted = connection.execute(
        text("""
        INSERT INTO unsettled (query_id, sent_at) SELECT id, NULL FROM videos WHERE id = :query
        ON CONFLICT (query_id) DO UPDATE SET sent_at = NULL"""),
        {"query": query_id},
    )
    return noted.rowcount > 0


def read_asking(connection: Connection, query_id: str) -> datetime | None:
    """When its settling was last asked for; to be read before the claims are."""
    found: datetime | None = connection.execute(
        text("SELECT asked_at FROM unsettled WHERE query_id = :query"), {"query": query_id}
    ).scalar()
    return found


def forget(connection: Connection, query_id: str, asked_at: datetime | None) -> None:
    """It is settled, unless somebody asked again since: that asking may know of newer facts."""
    connection.execute(
        text("DELETE FROM unsettled WHERE query_id = :query AND asked_at = :asked_at"),
        {"query": query_id, "asked_at": asked_at},
    )


def take_lost(
    connection: Connection, queued: int, lease: float, doubtful: float, most: int
) -> list[str]:
    """Queries whose message is lost, marked as sent now; settling twice does no harm."""
    rows = connection.execute(
        text("""
        UPDATE unsettled SET sent_at = now() WHERE query_id IN (
            SELECT query_id FROM unsettled
            WHERE sent_at IS NULL OR sent_at < now() - make_interval(secs => :doubtful)
               OR (:queued = 0 AND sent_at < now() - make_interval(secs => :lease))
            ORDER BY sent_at NULLS FIRST, query_id LIMIT :most FOR UPDATE SKIP LOCKED)
        RETURNING query_id"""),
        {"queued": queued, "lease": lease, "doubtful": doubtful, "most": most},
    )
    return sorted(rows.scalars())
