"""Videos that come in over HTTP: whole, or in parts that may be cut off and go on later.

In: bytes of a request, and what their sender says of them. Out: files in the folder of uploads,
named by their content and never by a client; rows in `upload_sessions`.
How much of a file has arrived is its size on the disk, so no row can say something else.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, text
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from retrieval.database import transaction
from retrieval.errors import BadVideo, Moved, NotFound, ServiceUnavailable
from retrieval.files import make_folder
from retrieval.media.video import hash_file
from retrieval.store import NO_ROOM
from vcl_plugin.web.problems import WebError

BUFFER = 1 << 20  # bytes that are written at once
ABANDONED_HOURS = 24  # after which a part that nobody goes on with is deleted
PARTS = "incoming"


@dataclass(frozen=True)
class Session:
    """A file that comes in parts: how large it will be, what is known of it, what it became."""

    id: str
    size: int
    offset: int  # bytes that have arrived
    facts: Mapping[str, Any]
    accepted: Mapping[str, Any] | None  # when it is complete


class Incoming:
    """The folder of uploads, and the parts in it that are not whole yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin_part(self, suffix: str = "") -> Path:
        """An empty file that bytes can be appended to."""
        path = self.part(secrets.token_hex(16) + suffix)
        with _no_room(path):
            make_folder(path.parent, None)
            path.open("xb").close()
        return path

    def part(self, name: str) -> Path:
        return self.folder / PARTS / name

    def keep(self, part: Path, title: str | None) -> tuple[Path, str]:
        """Give a whole part its place, by its content; returns the place and the SHA-256.

        The part stays, too, until whoever asked has written down where its content is now.
        """
        if part.stat().st_size == 0:
            raise BadVideo("the upload has 0 bytes; send the video itself", code="empty")
        digest = hash_file(part)
        target = self.folder / digest[:2] / f"{digest}{_suffix(title)}"
        with _no_room(target):
            make_folder(target.parent, None)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            if not target.exists():
                link = part.with_suffix(".kept")
                os.link(part, link)
                link.replace(target)
        return target, digest

    def drop_abandoned(self, database: Engine) -> int:
        """Delete parts and sessions that nobody went on with; returns how many files."""
        with transaction(database) as connection:
            connection.execute(
                text("""
                DELETE FROM upload_sessions
                WHERE moved_at < now() - :hours * interval '1 hour'"""),
                {"hours": ABANDONED_HOURS},
            )
        oldest = time.time() - ABANDONED_HOURS * 3600
        dropped = 0
        for path in (self.folder / PARTS).glob("*"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
                    dropped += 1
            except FileNotFoundError:
                continue
        return dropped


async def append_stream(part: Path, chunks: AsyncIterator[bytes], most: int) -> None:
    """Append what comes, at most so many bytes; what came before a cut stays."""
    buffer = bytearray()
    left = most
    try:
        async for chunk in chunks:
            left -= len(chunk)
            if left < 0:
                raise WebError(
                    f"more bytes came than the {most} that were still to come; send the rest of "
                    "the file and no more",
                    code="body_too_large",
                    status=413,
                )
            buffer += chunk
            if len(buffer) >= BUFFER:
                await run_in_threadpool(append_bytes, part, bytes(buffer))
                buffer.clear()
    except ClientDisconnect:
        raise WebError(
            "the upload was cut off; go on from its offset", code="cut_off", status=400
        ) from None
    finally:
        if buffer and left >= 0:
            await run_in_threadpool(append_bytes, part, bytes(buffer))


def append_bytes(part: Path, content: bytes) -> None:
    with _no_room(part), part.open("ab") as file:
        file.write(content)


@contextmanager
def hold(part: Path) -> Iterator[None]:
    """Let nobody else append to a part meanwhile; whoever comes second is refused."""
    try:
        file = part.open("rb")
    except FileNotFoundError:
        raise _gone() from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WebError(
                "another request is sending bytes of this upload; ask for its offset in a moment",
                code="upload_busy",
                status=409,
                headers={"Retry-After": "1"},
            ) from None
        yield


def open_session(
    connection: Connection, incoming: Incoming, viewer: str, size: int, facts: Mapping[str, Any]
) -> Session:
    """A file of that size is to come, from whoever has that key."""
    part = incoming.begin_part()
    session_id = secrets.token_urlsafe(24)
    connection.execute(
        text("""
        INSERT INTO upload_sessions (id, viewer, file, size, facts)
        VALUES (:id, :viewer, :file, :size, CAST(:facts AS jsonb))"""),
        {
            **{"id": session_id, "viewer": viewer, "file": part.name, "size": size},
            "facts": json.dumps({"told": dict(facts)}),
        },
    )
    return Session(session_id, size, 0, facts, None)


def read_session(
    connection: Connection, incoming: Incoming, viewer: str, session_id: str
) -> tuple[Session, Path]:
    """A session of that key, and its part. One of others is not there."""
    row = connection.execute(
        text("SELECT * FROM upload_sessions WHERE id = :id AND viewer = :viewer"),
        {"id": session_id, "viewer": viewer},
    ).first()
    if row is None:
        raise _gone()
    part, accepted = incoming.part(row.file), row.facts.get("accepted")
    try:
        offset = row.size if accepted else part.stat().st_size
    except FileNotFoundError:
        raise _gone() from None
    return Session(row.id, row.size, offset, row.facts["told"], accepted), part


def touch_session(connection: Connection, session_id: str) -> None:
    """Somebody goes on with it, so it is not abandoned."""
    connection.execute(
        text("UPDATE upload_sessions SET moved_at = now() WHERE id = :id"), {"id": session_id}
    )


def close_session(connection: Connection, session_id: str, accepted: Mapping[str, Any]) -> None:
    """Write down what a file became, for whoever asks again."""
    connection.execute(
        text("""
        UPDATE upload_sessions SET moved_at = now(), search_id = :search,
               facts = facts || jsonb_build_object('accepted', CAST(:accepted AS jsonb))
        WHERE id = :id"""),
        {
            **{"id": session_id, "search": accepted.get("search_id")},
            "accepted": json.dumps(dict(accepted)),
        },
    )


def drop_session(connection: Connection, session_id: str) -> None:
    connection.execute(text("DELETE FROM upload_sessions WHERE id = :id"), {"id": session_id})


def check_offset(session: Session, offset: int) -> None:
    """Bytes may only be put where the file ends."""
    if session.accepted is not None:
        raise Moved("this upload is complete; begin another one", code="moved")
    if offset != session.offset:
        raise WebError(
            f"{session.offset} bytes have arrived, so bytes from {offset} on do not fit; go on "
            f"from {session.offset}",
            code="wrong_offset",
            status=409,
            state={"offset": session.offset, "size": session.size},
        )


def check_whole(session: Session) -> None:
    if session.offset != session.size:
        raise WebError(
            f"{session.offset} of {session.size} bytes have arrived; send the rest first",
            code="wrong_offset",
            status=409,
            state={"offset": session.offset, "size": session.size},
        )


def _gone() -> NotFound:
    return NotFound("there is no such upload, or nobody went on with it for a day; begin it anew")


def _suffix(title: str | None) -> str:
    """The end of a file's name, for people who look into the folder; nothing reads it.

    >>> _suffix("a film.MP4"), _suffix("no/../film"), _suffix("x.mp4/..")
    ('.mp4', '', '')
    """
    found = re.search(r"\.[A-Za-z0-9]{1,5}$", title or "")
    return found[0].lower() if found else ""


@contextmanager
def _no_room(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise ServiceUnavailable(
            f"there is no room for uploads in {path.parent}; the upload can be sent again when "
            "there is",
            code="store_full",
        ) from None
