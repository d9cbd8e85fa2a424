"""The catalogue of videos: registered once by content, ready when described, references or not.

In: paths, foreign ids, descriptor files. Out: rows in `videos`, `descriptor_sets`,
`reference_changes`. Called by the engine and the command line; every function is one step of the
caller's transaction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from retrieval.errors import NotFound

# Writers of the log take this lock, so that its order is the order of their commits and a reader
# that has seen number n has seen everything before n.
_CHANGE_LOCK = 7340002


def register_file(connection: Connection, path: Path, content_hash: str, title: str | None) -> str:
    """The id of the video with that content; the same file twice is the same row."""
    row = connection.execute(
        text("SELECT id FROM videos WHERE content_hash = :hash"), {"hash": content_hash}
    ).first()
    if row is not None:
        # A failed file may have been mended in place only if its content changed, so a known
        # hash keeps its verdict; the path follows the file.
        connection.execute(
            text("UPDATE videos SET path = :path WHERE id = :id"),
            {"path": str(path), "id": row.id},
        )
        return str(row.id)
    video_id = content_hash[:16]
    connection.execute(
        text("""
        INSERT INTO videos (id, content_hash, path, title, sent_at)
        VALUES (:id, :hash, :path, :title, now()) ON CONFLICT DO NOTHING"""),
        {
            "id": video_id,
            "hash": content_hash,
            "path": str(path),
            "title": title or path.name,
        },
    )
    return video_id


def register_foreign(
    connection: Connection, video_id: str, title: str | None, duration: float
) -> None:
    """A video that another engine knows by `video_id` and has described itself."""
    connection.execute(
        text("""
        INSERT INTO videos (id, title, duration, status) VALUES (:id, :title, :duration, 'ready')
        ON CONFLICT (id) DO UPDATE SET title = excluded.title, duration = excluded.duration,
               status = 'ready', reason = NULL, message = NULL"""),
        {"id": video_id, "title": title or video_id, "duration": duration},
    )


def note_unregistered(connection: Connection, video_id: str) -> None:
    """A row that says why nothing can be found for an id; registering the video mends it."""
    connection.execute(
        text("""
        INSERT INTO videos (id, title, status, reason, message)
        VALUES (:id, :id, 'failed', 'not_registered', :message) ON CONFLICT DO NOTHING"""),
        {
            "id": video_id,
            "message": f"nobody registered the video {video_id!r}; send retrieval.register first",
        },
    )


def record_descriptors(
    connection: Connection, video_id: str, fingerprint: str, path: str, frames: int, dimension: int
) -> None:
    connection.execute(
        text("""
        INSERT INTO descriptor_sets (video_id, fingerprint, path, frames, dimension)
        VALUES (:video, :fingerprint, :path, :frames, :dimension)
        ON CONFLICT (video_id, fingerprint) DO UPDATE
        SET path = excluded.path, frames = excluded.frames, dimension = excluded.dimension"""),
        {
            "video": video_id,
            "fingerprint": fingerprint,
            "path": path,
            "frames": frames,
            "dimension": dimension,
        },
    )


def finish_ingest(connection: Connection, video_id: str, duration: float) -> None:
    """The video is ready; if it is a reference, every index hears of it."""
    connection.execute(
        text("""
        UPDATE videos SET status = 'ready', duration = :duration, reason = NULL, message = NULL,
               leased_by = NULL, lease_until = NULL
        WHERE id = :id"""),
        {"id": video_id, "duration": duration},
    )
    _announce(connection, video_id, "add", only_if_reference=True)


def reopen(connection: Connection, video_id: str) -> None:
    """Let a ready video be described once more, by another descriptor."""
    connection.execute(
        text("UPDATE videos SET status = 'waiting', attempts = 0 WHERE id = :id"), {"id": video_id}
    )


def fail_ingest(connection: Connection, video_id: str, code: str, message: str) -> None:
    connection.execute(
        text("""
        UPDATE videos SET status = 'failed', reason = :code, message = :message,
               leased_by = NULL, lease_until = NULL
        WHERE id = :id"""),
        {"id": video_id, "code": code, "message": message},
    )


def make_reference(connection: Connection, video_id: str) -> None:
    """From now on the video is searched against (once it is ready)."""
    changed = connection.execute(
        text("UPDATE videos SET is_reference = true WHERE id = :id AND NOT is_reference"),
        {"id": video_id},
    )
    if changed.rowcount:
        _announce(connection, video_id, "add")


def unmake_reference(connection: Connection, video_id: str) -> None:
    """Stop searching against the video; its descriptors and its past segments stay."""
    changed = connection.execute(
        text("UPDATE videos SET is_reference = false WHERE id = :id AND is_reference"),
        {"id": video_id},
    )
    if not changed.rowcount:
        raise NotFound(f"video {video_id!r} is no reference; `vcl reference list` shows them")
    _announce(connection, video_id, "remove")


def read_video(connection: Connection, video_id: str) -> dict[str, Any]:
    row = (
        connection.execute(text("SELECT * FROM videos WHERE id = :id"), {"id": video_id})
        .mappings()
        .first()
    )
    if row is None:
        raise NotFound(f"there is no video {video_id!r}")
    return dict(row)


def find_descriptors(connection: Connection, video_id: str, fingerprint: str) -> str | None:
    """Where the video's descriptors of that kind lie, or None if it has none."""
    path = connection.execute(
        text("""
        SELECT path FROM descriptor_sets
        WHERE video_id = :video AND fingerprint = :fingerprint"""),
        {"video": video_id, "fingerprint": fingerprint},
    ).scalar()
    return None if path is None else str(path)


def newest_fingerprint(connection: Connection, video_id: str) -> str | None:
    """The kind of the video's latest descriptors."""
    found = connection.execute(
        text("""
        SELECT fingerprint FROM descriptor_sets WHERE video_id = :id
        ORDER BY created_at DESC, fingerprint LIMIT 1"""),
        {"id": video_id},
    ).scalar()
    return None if found is None else str(found)


def read_changes(
    connection: Connection, fingerprint: str, after: int
) -> list[tuple[int, str, str, str | None]]:
    """The log after a number: (seq, action, video, descriptor path), oldest first."""
    rows = connection.execute(
        text("""
        SELECT changes.seq, changes.action, changes.video_id, sets.path
        FROM reference_changes AS changes
        LEFT JOIN descriptor_sets AS sets
               ON sets.video_id = changes.video_id AND sets.fingerprint = changes.fingerprint
        WHERE changes.fingerprint = :fingerprint AND changes.seq > :after
        ORDER BY changes.seq"""),
        {"fingerprint": fingerprint, "after": after},
    )
    return [(row.seq, row.action, row.video_id, row.path) for row in rows]


def _announce(
    connection: Connection, video_id: str, action: str, only_if_reference: bool = False
) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _CHANGE_LOCK})
    connection.execute(
        text("""
        INSERT INTO reference_changes (video_id, fingerprint, action)
        SELECT sets.video_id, sets.fingerprint, :action
        FROM descriptor_sets AS sets JOIN videos ON videos.id = sets.video_id
        WHERE sets.video_id = :video AND (videos.is_reference OR NOT :only_if_reference)
        ORDER BY sets.fingerprint"""),
        {"video": video_id, "action": action, "only_if_reference": only_if_reference},
    )
