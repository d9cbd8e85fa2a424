"""This process's copy of an index, kept true by replaying the log of changes.

In: a collection of videos (references, or uploads) and the log in PostgreSQL. Out: its index, as of
now. Called by the engine, which has one replica of each collection.
"""

from __future__ import annotations

import logging
from pathlib import Path

from sqlalchemy import Engine

from retrieval import catalogue
from retrieval.database import transaction
from retrieval.errors import NotFound, RetrievalError
from retrieval.index import VideoIndex
from retrieval.plugins import Pooler
from retrieval.store import Store

log = logging.getLogger(__name__)


class Replica:
    """The index of one collection, for one kind of descriptors and one pooler."""

    def __init__(
        self,
        collection: str,
        fingerprint: str,
        pooler: Pooler,
        database: Engine,
        store: Store,
        folder: Path,
    ) -> None:
        self.collection = collection
        self.fingerprint = fingerprint
        self.pooler = pooler
        self.database = database
        self.store = store
        self.folder = folder
        self.key = f"{collection}.{fingerprint}.{pooler.fingerprint}"
        self.index = VideoIndex.load(folder, self.key)
        self.unreadable: dict[str, str] = {}  # videos left out of the index, and their files

    def refresh(self) -> VideoIndex:
        """Replay what changed since the last look, so that a new video is found at once.

        A video whose descriptors cannot be read is left out, not in the way of all others; every
        refresh tries it again.
        """
        with transaction(self.database) as connection:
            changes = catalogue.read_changes(
                connection, self.collection, self.fingerprint, since=self.index.seq
            )
        if self.index.seq:
            seen = (self.index.seq, self.index.stamp)
            if not changes or (changes[0].seq, changes[0].stamp) != seen:
                log.warning("the index in %s is of another database", self.folder)
                self._forget()
                return self.refresh()
            del changes[0]
        pending = {**self.unreadable}
        for change in changes:
            pending.pop(change.video_id, None)
            self.index.remove(change.video_id)
            if change.action == "add" and change.path is not None:
                pending[change.video_id] = change.path
        self.unreadable = {}
        for video_id, path in pending.items():
            try:
                stored = self.store.read(path)
            except RetrievalError as error:
                log.error("video %s is left out of the index: %s", video_id, error)
                self.unreadable[video_id] = path
                continue
            self.index.add(video_id, self.pooler.pool(stored.descriptors, stored.low_information))
        if changes:
            self.index.seq, self.index.stamp = changes[-1].seq, changes[-1].stamp
        return self.index

    def build(self) -> VideoIndex:
        """Forget the index and make it anew from the store; save it as the base of all others."""
        self._forget()
        self.refresh()
        if self.unreadable:
            # Whoever starts from a saved index does not look back, so it must be whole.
            first, path = next(iter(self.unreadable.items()))
            raise NotFound(
                f"{len(self.unreadable)} {self.collection} cannot be read, the first is {first} at "
                f"{path}; bring the files back, add those videos again, or take them out with "
                "`vcl reference remove`"
            )
        self.index.save(self.folder)
        return self.index

    def _forget(self) -> None:
        self.index, self.unreadable = VideoIndex(self.key), {}
