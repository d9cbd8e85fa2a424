"""The catalogue of videos: registered once by content, ready when described, references or not.

In: paths, foreign ids, descriptor files. Out: rows in `videos`, `descriptor_sets`, `index_changes`.
Every function is one step of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from sqlalchemy import Connection, RowMapping, text

from retrieval.errors import NotFound
from retrieval.records import Video, VideoStatus
from retrieval.work import locks
from retrieval.work.changes import REFERENCES, UPLOADS, announce


def register_file(connection: Connection, path: Path, content_hash: str, title: str | None) -> str:
    """The id of the video with that content; the same file twice is the same row.

    The path follows the file. A video that failed is tried once more: the file may have been out
    of reach, a limit too tight, a worker ill. What is wrong in its content will be found again.

    One at a time for each content: a row has two keys, and of two inserts at the same moment one
    may meet the other by the id, where ON CONFLICT looks for the hash.
    """
    locks.take(connection, locks.Lock.CONTENT, content_hash)
    return str(
        connection.execute(
            text("""
            INSERT INTO videos (id, content_hash, path, title, sent_at)
            -- Sixteen digits read better in a report; a foreign engine may have taken them.
            SELECT CASE WHEN EXISTS (SELECT 1 FROM videos WHERE id = :short
                                        AND content_hash IS DISTINCT FROM :hash)
                        THEN :hash ELSE :short END, :hash, :path, :title, now()
            ON CONFLICT (content_hash) DO UPDATE SET
                path = excluded.path,
                status = CASE WHEN videos.status = 'failed' THEN 'waiting' ELSE videos.status END,
                attempts = CASE WHEN videos.status = 'failed' THEN 0 ELSE videos.attempts END,
                sent_at = CASE WHEN videos.status = 'failed' THEN now() ELSE videos.sent_at END,
                reason = CASE WHEN videos.status <> 'failed' THEN videos.reason END,
                message = CASE WHEN videos.status <> 'failed' THEN videos.message END
            RETURNING id"""),
            {
                "short": content_hash[:16],
                "hash": content_hash,
                "path": str(path),
                "title": title or path.name,
            },
        ).scalar_one()
    )


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


def refuse_foreign(connection: Connection, video_id: str, code: str, message: str) -> None:
    """Why a registration failed, in the row that its sender reads.

    A video that was registered well before stays as it was, and carries the remark.
    """
    connection.execute(
        text("""
        INSERT INTO videos (id, title, status, reason, message)
        VALUES (:id, :id, 'failed', :code, :message)
        ON CONFLICT (id) DO UPDATE SET reason = excluded.reason, message = excluded.message"""),
        {"id": video_id, "code": code, "message": message},
    )


def note_unregistered(connection: Connection, video_ids: Sequence[str]) -> None:
    """For ids nobody knows, rows that say so; registering the video mends them."""
    connection.execute(
        text("""
        INSERT INTO videos (id, title, status, reason, message)
        SELECT id, id, 'failed', 'not_registered',
               'nobody registered the video ' || quote_literal(id)
               || '; send retrieval.register first'
        FROM unnest(CAST(:ids AS text[])) AS id ORDER BY id -- one lock order for all
        ON CONFLICT DO NOTHING"""),
        {"ids": list(video_ids)},
    )


def record_descriptors(
    connection: Connection, video_id: str, fingerprint: str, path: str, frames: int, dimension: int
) -> None:
    """Where the video's descriptors of that kind lie; every index hears of it."""
    # The row is locked first: whoever makes it a reference at this moment comes before, and is
    # seen here, or after, and sees these descriptors. Either way the change is announced.
    is_reference = connection.execute(
        text("SELECT is_reference FROM videos WHERE id = :id FOR UPDATE"), {"id": video_id}
    ).scalar_one()
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
    collection = REFERENCES if is_reference else UPLOADS
    announce(connection, video_id, "add", collection, fingerprint)


def finish_ingest(connection: Connection, video_id: str, duration: float, holder: str) -> None:
    """The video is ready; a holder who lost the lease changes nothing."""
    connection.execute(
        text("""
        UPDATE videos SET status = 'ready', duration = :duration, reason = NULL, message = NULL,
               leased_by = NULL, lease_until = NULL
        WHERE id = :id AND leased_by = :holder"""),
        {"id": video_id, "duration": duration, "holder": holder},
    )


def reopen(connection: Connection, *video_ids: str, is_sent: bool = False) -> None:
    """Let videos that are ready or failed be described once more.

    One that is at work already, because somebody else reopened it a moment ago, is left alone. The
    sweeper sends them, unless the caller does.
    """
    connection.execute(
        text("""
        UPDATE videos SET status = 'waiting', attempts = 0, reason = NULL, message = NULL,
               sent_at = CASE WHEN :is_sent THEN now() END
        WHERE id IN (SELECT id FROM videos WHERE id = ANY(:ids) AND status IN ('ready', 'failed')
                     ORDER BY id FOR UPDATE)"""),
        {"ids": list(video_ids), "is_sent": is_sent},
    )


def fail_ingest(
    connection: Connection,
    video_id: str,
    code: str,
    message: str,
    holder: str,
    fingerprint: str | None = None,
) -> None:
    """The video cannot be described; a holder who lost the lease changes nothing.

    One that has descriptors of other kinds stays ready, with the remark: they serve whoever uses
    them, today or after weights were taken back.
    """
    connection.execute(
        text("""
        UPDATE videos SET reason = :code, message = :message, leased_by = NULL, lease_until = NULL,
               status = CASE WHEN EXISTS (SELECT 1 FROM descriptor_sets
                                          WHERE video_id = :id AND fingerprint <> :fingerprint)
                             THEN 'ready' ELSE 'failed' END
        WHERE id = :id AND leased_by = :holder"""),
        {
            "id": video_id,
            "code": code,
            "message": message,
            "holder": holder,
            "fingerprint": fingerprint,
        },
    )


def make_reference(connection: Connection, video_id: str) -> None:
    """From now on the video is searched against (once it is ready)."""
    changed = connection.execute(
        text("UPDATE videos SET is_reference = true WHERE id = :id AND NOT is_reference"),
        {"id": video_id},
    )
    if changed.rowcount:
        announce(connection, video_id, "remove", UPLOADS)
        announce(connection, video_id, "add", REFERENCES)


def unmake_reference(connection: Connection, video_id: str) -> None:
    """Stop searching against the video; its descriptors and its past segments stay."""
    changed = connection.execute(
        text("UPDATE videos SET is_reference = false WHERE id = :id AND is_reference"),
        {"id": video_id},
    )
    if not changed.rowcount:
        raise NotFound(f"video {video_id!r} is no reference; `vcl reference list` shows them")
    announce(connection, video_id, "remove", REFERENCES)
    announce(connection, video_id, "add", UPLOADS)


def read_video(connection: Connection, video_id: str) -> Video:
    row = (
        connection.execute(text("SELECT * FROM videos WHERE id = :id"), {"id": video_id})
        .mappings()
        .first()
    )
    if row is None:
        raise NotFound(f"there is no video {video_id!r}")
    return _as_video(row)


def find_video(connection: Connection, name: str) -> Video:
    """The video that a person names: by its id, its title, or the path of its file."""
    rows = (
        connection.execute(
            text("""
            SELECT *, CASE WHEN id = :name THEN 0 WHEN title = :name THEN 1 ELSE 2 END AS by
            FROM videos WHERE id = :name OR title = :name OR path = :path
            ORDER BY by, created_at DESC"""),
            {"name": name, "path": str(Path(name).absolute())},
        )
        .mappings()
        .all()
    )
    if not rows:
        raise NotFound(
            f"no video has {name!r} as id, title or path; `vcl reference list` shows references, "
            "and `vcl search` registers an upload",
            code="not_registered",
        )
    best = [_as_video(row) for row in rows if row["by"] == rows[0]["by"]]
    if len(best) > 1:
        ids = ", ".join(video.id for video in best[:5])
        raise NotFound(f"{len(best)} videos are called {name!r}; name one by its id: {ids}")
    return best[0]


def read_videos(connection: Connection, video_ids: Sequence[str]) -> list[Video]:
    """Those of the videos that exist, in no particular order."""
    rows = connection.execute(
        text("SELECT * FROM videos WHERE id = ANY(:ids)"), {"ids": list(video_ids)}
    )
    return [_as_video(row) for row in rows.mappings()]


def _as_video(row: RowMapping) -> Video:
    """The columns that this code knows; a newer schema may have more."""
    facts = {each.name: row[each.name] for each in fields(Video)}
    return Video(**facts | {"status": VideoStatus(row["status"])})


def find_unchanged(connection: Connection, path: Path) -> str | None:
    """The video registered from that path, if the file has not been touched since.

    One that failed is not found: registering it again gives it another chance. A file moved here
    keeps the time of its content, which may be old, so the time of its inode counts as well.
    """
    facts = path.stat()
    found = connection.execute(
        text("""
        SELECT id FROM videos
        WHERE path = :path AND created_at > to_timestamp(:touched) AND status <> 'failed'
        ORDER BY created_at DESC"""),
        {"path": str(path), "touched": max(facts.st_mtime, facts.st_ctime)},
    ).scalar()
    return None if found is None else str(found)


def find_descriptors(connection: Connection, video_id: str, fingerprint: str) -> str | None:
    """Where the video's descriptors of that kind lie, or None if it has none."""
    path = connection.execute(
        text("""
        SELECT path FROM descriptor_sets
        WHERE video_id = :video AND fingerprint = :fingerprint"""),
        {"video": video_id, "fingerprint": fingerprint},
    ).scalar()
    return None if path is None else str(path)


def list_described(connection: Connection, video_ids: Sequence[str], fingerprint: str) -> set[str]:
    """Those of the videos that have descriptors of that kind."""
    found = connection.execute(
        text("""
        SELECT video_id FROM descriptor_sets
        WHERE video_id = ANY(:ids) AND fingerprint = :fingerprint"""),
        {"ids": list(video_ids), "fingerprint": fingerprint},
    )
    return set(found.scalars())


def newest_fingerprint(connection: Connection, video_id: str) -> str | None:
    """The kind of the video's latest descriptors."""
    found = connection.execute(
        text("""
        SELECT fingerprint FROM descriptor_sets WHERE video_id = :id
        ORDER BY created_at DESC, fingerprint LIMIT 1"""),
        {"id": video_id},
    ).scalar()
    return None if found is None else str(found)


def count_frames(connection: Connection, video_ids: Sequence[str]) -> dict[str, int]:
    """How long each video is, by its longest descriptors."""
    rows = connection.execute(
        text("""
        SELECT video_id, max(frames) AS frames FROM descriptor_sets
        WHERE video_id = ANY(:ids) GROUP BY video_id"""),
        {"ids": list(video_ids)},
    )
    return {row.video_id: row.frames for row in rows}
