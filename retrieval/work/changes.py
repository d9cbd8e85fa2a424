"""The log of changes that every index replays: which videos came, changed or went, in order.

In: what the catalogue announces. Out: rows in `index_changes`, read by number.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from retrieval.work import locks

# A video is in one of two collections: what is searched against, and what was searched for.
REFERENCES = "references"
UPLOADS = "uploads"


@dataclass(frozen=True)
class Change:
    """One line of the log: a video was added (or described anew) or removed."""

    seq: int
    action: str
    video_id: str
    path: str | None  # of its descriptors, as they are now
    stamp: str  # when it was written; with `seq`, it tells this log from any other


def read_changes(
    connection: Connection, collection: str, fingerprint: str, since: int
) -> list[Change]:
    """A collection's log from a number on, that one included, oldest first."""
    rows = connection.execute(
        text("""
        SELECT changes.seq, changes.action, changes.video_id, sets.path,
               extract(epoch FROM changes.created_at)::text AS stamp
        FROM index_changes AS changes
        LEFT JOIN descriptor_sets AS sets
               ON sets.video_id = changes.video_id AND sets.fingerprint = changes.fingerprint
        WHERE changes.collection = :collection AND changes.fingerprint = :fingerprint
          AND changes.seq >= :since
        ORDER BY changes.seq"""),
        {"collection": collection, "fingerprint": fingerprint, "since": since},
    )
    return [Change(*row) for row in rows]


def count_changes(
    connection: Connection, collection: str, fingerprint: str, since: int, stamp: str
) -> int:
    """Changes after a known one; all there are, if that one is not of this log."""
    return int(
        connection.execute(
            text("""
            SELECT count(*) FROM index_changes
            WHERE collection = :collection AND fingerprint = :fingerprint
              AND seq > coalesce((SELECT seq FROM index_changes
                                  WHERE seq = :since
                                    AND extract(epoch FROM created_at)::text = :stamp), 0)"""),
            {
                "collection": collection,
                "fingerprint": fingerprint,
                "since": since,
                "stamp": stamp,
            },
        ).scalar_one()
    )


def announce(
    connection: Connection,
    video_id: str,
    action: str,
    collection: str,
    fingerprint: str | None = None,
) -> None:
    """Write a line of the log for each kind of descriptors the video has, or for one kind.

    Writers go one after the other, so that the log's order is the order of their commits and a
    reader that has seen number n has seen everything before n.
    """
    locks.take(connection, locks.Lock.CHANGES)
    connection.execute(
        text("""
        INSERT INTO index_changes (video_id, fingerprint, collection, action, created_at)
        SELECT video_id, fingerprint, :collection, :action, clock_timestamp() FROM descriptor_sets
        WHERE video_id = :video
          AND (CAST(:fingerprint AS text) IS NULL OR fingerprint = :fingerprint)
        ORDER BY fingerprint"""),
        {
            "video": video_id,
            "action": action,
            "collection": collection,
            "fingerprint": fingerprint,
        },
    )
