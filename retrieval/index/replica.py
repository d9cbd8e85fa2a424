"""This process's view of an index, kept true by replaying the log of changes.

In: a collection of videos (references, or uploads) and the log in PostgreSQL. Out: its index, as of
now, and from time to time a snapshot to start from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.errors import (
    MissingFile,
    NotFound,
    Refused,
    RetrievalError,
    ServiceUnavailable,
    Unreadable,
)
from retrieval.index import snapshots
from retrieval.index.index import Index, Position
from retrieval.index.local import VideoIndex
from retrieval.index.pooling import pool_query
from retrieval.plugins import Pooler
from retrieval.settings import Settings
from retrieval.store import Store
from retrieval.work import locks
from retrieval.work.changes import Change, count_changes, read_changes

log = logging.getLogger(__name__)

# Fewer changes than this are replayed faster than a snapshot is made.
FEWEST_CHANGES = 100


class Replica:
    """The index of one collection, for one kind of descriptors and one pooler."""

    def __init__(
        self,
        collection: str,
        fingerprint: str,
        pooler: Pooler,
        database: Engine,
        store: Store,
        settings: Settings,
    ) -> None:
        self.collection = collection
        self.fingerprint = fingerprint
        self.pooler = pooler
        self.database = database
        self.store = store
        self.settings = settings
        self.folder = settings.index_dir
        self.key = f"{collection}.{fingerprint}.{pooler.fingerprint}"

    @cached_property
    def index(self) -> Index:
        # At first use: a worker that only asks whether a snapshot is due needs no index.
        if self.settings.index_url:
            from retrieval.index.milvus import MilvusIndex  # an extra that most do without

            return MilvusIndex(self.settings.index_url, self.key)
        return self._load()

    @property
    def unreadable(self) -> dict[str, str]:
        """Videos left out of the index, and their files."""
        return self.index.position.unreadable

    def refresh(self) -> Index:
        """Replay what changed since the last look, so that a new video is found at once.

        A video whose descriptors cannot be read is left out, not in the way of all others; every
        refresh tries it again. What is in the index already stays there unless its file turned
        bad: a file out of reach of this machine may be in reach of those that share the index.
        """
        self._move()
        if self.index.is_shared:
            self._refresh_shared()
        else:
            self._replay(self.index)
        return self.index

    def build(self) -> Index:
        """Make the index anew from the store, beside the one that is searched; save it as the base
        of all others."""
        if self.index.is_shared:
            with self._building(waits=False) as is_ours:
                if not is_ours:
                    raise Refused(
                        f"the index {self.key} is being made anew by another process; it will be "
                        "searched as soon as it is whole"
                    )
                self._build_beside(self._refuse_unreadable)
        else:
            with snapshots.lock_index(self.folder, self.key):
                self.store.check()  # before the work is begun
                anew = self.index.begin_anew()
                self._replay(anew)
                self._refuse_unreadable(anew)
                self.__dict__["index"] = anew
                self._save()
        return self.index

    def snapshot_if_due(self) -> bool:
        """Save a snapshot, if much has changed since the last and nobody else is at it."""
        if not self.is_due():
            return False
        with snapshots.lock_index(self.folder, self.key, wait=False) as is_ours:
            if not is_ours or not self.is_due():  # somebody is at it, or was, a moment ago
                return False
            self.refresh()
            self._save()
        log.info("index snapshot key=%s videos=%d", self.key, len(self.index))
        return True

    def is_due(self) -> bool:
        """Whether a starting worker would have much to replay."""
        if self.settings.index_url:
            return False  # it is where it is searched, always whole
        facts = snapshots.current_facts(self.folder, self.key)
        videos = 0 if facts is None else facts.videos
        limit = max(FEWEST_CHANGES, int(self.settings.index_delta_share * videos))
        return self._count_changes(facts) >= limit

    def _count_changes(self, facts: snapshots.SnapshotFacts | None) -> int:
        """Changes that are not in the snapshot."""
        since, stamp = (0, "") if facts is None else (facts.seq, facts.stamp)
        with transaction(self.database) as connection:
            return count_changes(connection, self.collection, self.fingerprint, since, stamp)

    def facts(self) -> dict[str, Any]:
        """What is in the index and in its last snapshot."""
        index = self.refresh()
        facts: dict[str, Any] = {
            "collection": self.collection,
            "key": self.key,
            "videos": len(index),
            "vectors": index.vectors,
            "dimension": index.dimension,
            "fingerprint": self.fingerprint,
            "pooler": self.pooler.fingerprint,
            "last_change": index.position.seq,
            "unreadable": len(self.unreadable),
        }
        if not index.is_shared:
            saved = snapshots.current_facts(self.folder, self.key)
            facts["folder"] = str(self.folder)
            facts["changes_since_snapshot"] = self._count_changes(saved)
        return facts | index.facts()

    def _load(self) -> VideoIndex:
        return VideoIndex.load(self.folder, self.key, device=self.settings.device)

    def _save(self) -> None:
        if isinstance(self.index, VideoIndex):
            self.index.save(self.folder, self.settings.index_fast_from, self.settings.mode)
            self._move()

    def _move(self) -> None:
        """Start from a newer snapshot, if there is one: what this process replayed is freed."""
        index = self.index
        if not isinstance(index, VideoIndex):
            return
        newest = snapshots.current_snapshot(self.folder, self.key)
        if newest is not None and newest != index.snapshot:
            loaded = self._load()
            if loaded.snapshot is not None:  # else it cannot be read, and ours is as good
                self.__dict__["index"] = loaded

    def _refresh_shared(self) -> None:
        position = self.index.position
        changes = self._read_log(position)
        if changes is None:
            log.warning("the index %s is of another database", self.key)
            with self._building(waits=True):
                if self._read_log(self.index.position) is None:  # else another process was first
                    self._build_beside(lambda index: None)
        elif changes:
            with self._alone():
                self._replay(self.index)
        elif position.unreadable:
            with self._alone(waits=False) as is_ours:
                if is_ours:  # else somebody tries those files at this moment
                    self._replay(self.index)

    def _build_beside(self, check: Callable[[Index], None]) -> None:
        """Fill a new index while the old one is searched and kept true; then switch.

        What comes meanwhile is in both: before the switch the log is read to its end, while
        nobody else writes.
        """
        self.store.check()  # before the work is begun
        anew = self.index.begin_anew()
        while self._replay(anew) > FEWEST_CHANGES:
            pass
        with self._alone():
            self._replay(anew)
            check(anew)
            anew.serve()

    def _refuse_unreadable(self, index: Index) -> None:
        unreadable = index.position.unreadable
        if unreadable:
            first, path = next(iter(unreadable.items()))
            raise NotFound(
                f"{len(unreadable)} {self.collection} cannot be read, the first is "
                f"{first} at {path}; bring the files back, add those videos again, or take "
                "them out with `vcl reference remove`"
            )

    def _read_log(self, position: Position) -> list[Change] | None:
        """Changes after that position, or None if it was read from another log."""
        with transaction(self.database) as connection:
            changes = read_changes(
                connection, self.collection, self.fingerprint, since=position.seq
            )
        if not position.seq:
            return changes
        seen = (position.seq, position.stamp)
        return changes[1:] if changes and (changes[0].seq, changes[0].stamp) == seen else None

    def _replay(self, index: Index) -> int:
        """Bring that index up to the end of the log; returns how many changes that were."""
        position = index.position
        changes = self._read_log(position)
        if changes is None:
            if index.is_shared:
                raise ServiceUnavailable(
                    f"the index {self.key} was made from another database a moment ago; it will "
                    "be made anew"
                )
            log.warning("the index %s is of another database", self.key)
            self.__dict__["index"] = index.begin_anew()
            return self._replay(self.index)
        if not changes and not position.unreadable:
            return 0
        pending = {**position.unreadable}
        for change in changes:
            pending.pop(change.video_id, None)
            if change.action == "add" and change.path is not None:
                pending[change.video_id] = change.path
            else:
                index.remove(change.video_id)
        unreadable: dict[str, str] = {}
        for video_id, path in pending.items():
            try:
                stored = self.store.read(path, self.fingerprint)
            except ServiceUnavailable:
                raise  # says nothing of this video
            except RetrievalError as error:
                log.error("video %s is left out of the index: %s", video_id, error)
                if not isinstance(error, MissingFile | Unreadable):
                    index.remove(video_id)
                unreadable[video_id] = path
                continue
            if self.collection == "uploads":
                # Its parts, too: a reference that comes later may be shown small in it.
                pooled = pool_query(self.pooler, stored)
            else:
                pooled = self.pooler.pool(stored.descriptors, stored.low_information)
            index.add(video_id, pooled)
        last = changes[-1] if changes else position
        index.commit(Position(last.seq, last.stamp, unreadable))
        return len(changes)

    def _alone(self, waits: bool = True) -> AbstractContextManager[bool]:
        """One process at a time writes an index that machines share."""
        return self._holding(locks.Lock.INDEX, waits)

    def _building(self, waits: bool) -> AbstractContextManager[bool]:
        """One process at a time makes such an index anew; others go on writing the one there is."""
        return self._holding(locks.Lock.BUILD, waits)

    @contextmanager
    def _holding(self, lock: locks.Lock, waits: bool) -> Iterator[bool]:
        """Whether this process has the lock; it dies with its holder, on whatever machine."""
        with transaction(self.database) as connection:
            # The transaction waits for the index however long that takes; a limit on idleness
            # would take the lock away from under the work.
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            if not waits:
                yield locks.try_take(connection, lock, self.key)
                return
            locks.take(connection, lock, self.key)
            yield True
