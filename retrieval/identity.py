"""Which folder is the store of this database: an id in PostgreSQL, and the same in a file of it.

In: a database and a folder. Out: nothing where they belong together, else `ServiceUnavailable`.
A disk that is not mounted looks like a store whose files are all gone; the mark tells them apart.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from retrieval.database import transaction
from retrieval.errors import ServiceUnavailable
from retrieval.store import write_atomically

log = logging.getLogger(__name__)

MARK = "store.id"  # in the store's folder
SAMPLE = 20  # files of an unmarked store, of which one at least must be there


class StoreIdentity:
    """The id of a database's store, and whether `root` is that store at this moment."""

    def __init__(self, database: Engine, root: Path, mode: int = 0o640) -> None:
        self.database, self.root, self.mode = database, root, mode
        self._id: str | None = None
        self._seen = float("-inf")

    def check(self, within: float = 0.0) -> None:
        """Raise unless the folder is the store; not asked again `within` seconds of a good answer.

        The first who asks marks the folder: a new database has no store yet.
        """
        if time.monotonic() - self._seen < within:
            return
        if self._id is None:
            self._id = self._read_or_found()
        self._compare(self._id)
        self._seen = time.monotonic()

    def inspect(self) -> str:
        """The store in words, where it is well or new; marks nothing."""
        with transaction(self.database) as connection:
            identity, is_founded = _read(connection)
        if not is_founded:
            return f"{self.root} (not made yet)"
        self._compare(identity)
        return f"{self.root}, {identity}"

    def read_id(self) -> str:
        with transaction(self.database) as connection:
            return _read(connection)[0]

    def adopt(self) -> None:
        """From now on this folder is the store, whatever it was."""
        with transaction(self.database) as connection:
            _lock(connection)
            identity, _ = _read(connection)
            self._mark(connection, identity)

    def _read_or_found(self) -> str:
        with transaction(self.database) as connection:
            identity, is_founded = _read(connection)
            if is_founded:
                return identity
            _lock(connection)
            identity, is_founded = _read(connection)
            if not is_founded:
                self._refuse_stranger(connection, identity)
                self._mark(connection, identity)
        return identity

    def _refuse_stranger(self, connection: Connection, identity: str) -> None:
        """A folder that another database marked, or that has none of the files we know of."""
        if (self.root / MARK).exists():
            self._compare(identity)
        paths = connection.execute(
            text("""
            SELECT path FROM descriptor_sets
            WHERE starts_with(path, :root)  -- of earlier releases; all others are keys
               OR NOT starts_with(path, '/') AND position('://' IN path) = 0 LIMIT :most"""),
            {"root": f"{self.root}/", "most": SAMPLE},
        ).scalars()
        known = [self.root / each for each in paths]
        if known and not any(each.is_file() for each in known):
            raise self._away(f"none of {len(known)} files is there, such as {known[0]}")

    def _mark(self, connection: Connection, identity: str) -> None:
        log.warning("%s becomes the store of this database, marked %s", self.root, identity)
        write_atomically(self.root / MARK, f"{identity}\n".encode(), self.mode)
        connection.execute(
            text("UPDATE store_identity SET founded_at = now(), location = :root"),
            {"root": str(self.root)},
        )

    def _compare(self, identity: str) -> None:
        try:
            found = (self.root / MARK).read_text(encoding="ascii", errors="replace").strip()
        except OSError as error:
            raise self._away(f"{MARK}: {error.strerror}") from error
        if found != identity:
            raise self._away(f"{MARK} says {found[:80]!r}, the database {identity!r}")

    def _away(self, why: str) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"{self.root} is not the store of this database ({why}); mount it or correct "
            "VCL_HOME, and work that waits goes on by itself, or make this folder the store with "
            "`vcl store --adopt`"
        )


def _lock(connection: Connection) -> None:
    connection.execute(text("SELECT id FROM store_identity FOR UPDATE"))


def _read(connection: Connection) -> tuple[str, bool]:
    """The id, and whether a folder was marked with it."""
    row = connection.execute(text("SELECT id, founded_at FROM store_identity")).one()
    return str(row.id), row.founded_at is not None
