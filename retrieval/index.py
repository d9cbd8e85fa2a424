"""A FAISS index of videos: a base file, changes since, and what was removed.

In: pooled vectors of videos. Out: the nearest of them to a query's vectors.
Called by the replica, which replays `index_changes` into it. The index is a cache: everything in
it can be rebuilt from the store, and its file is only ever replaced whole.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.errors import FingerprintMismatch
from retrieval.plugins import Array, Pooled
from retrieval.store import write_atomically

log = logging.getLogger(__name__)

CURRENT = "current.json"


@dataclass(frozen=True)
class Hits:
    """Nearest vectors, a row a query vector: scores (q, k), video numbers and spans beside them.

    A video number counts into `videos`; -1 marks a place that nothing filled.
    """

    scores: NDArray[np.float32]
    numbers: NDArray[np.int64]
    spans: NDArray[np.float32]  # (q, k, 2)
    videos: list[str]


class VideoIndex:
    """Exact inner-product search over a memory-mapped base and a delta in memory."""

    def __init__(self, key: str, dimension: int = 256) -> None:
        self.key = key  # descriptor and pooler that made the vectors
        self.dimension = dimension
        self.seq = 0  # last change of the log that is in here
        self.stamp = ""  # when that change was written: tells this log from another
        self.videos: list[str] = []
        self._number: dict[str, int] = {}  # living videos only
        self._base: faiss.Index | None = None
        self._delta = faiss.IndexFlatIP(dimension)
        # Video number -> its first position; the next video's first is its end.
        self._firsts: list[int] = []
        # Position -> video number, span, dead. Longer than the index: they grow by doubling.
        self._owner = np.zeros(0, dtype=np.int64)
        self._spans = np.zeros((0, 2), dtype=np.float32)
        self._is_dead = np.zeros(0, dtype=bool)
        self._count = 0

    def __len__(self) -> int:
        """Living videos."""
        return len(self._number)

    @property
    def vectors(self) -> int:
        """Living vectors."""
        return self._count - int(self._is_dead[: self._count].sum())

    def __contains__(self, video_id: str) -> bool:
        return video_id in self._number

    def add(self, video_id: str, pooled: Pooled) -> None:
        """Add a video, or put new vectors in the place of its old ones."""
        if pooled.vectors.shape[1] != self.dimension:
            raise FingerprintMismatch(
                f"the index holds vectors of {self.dimension} dimensions, video {video_id!r} "
                f"has {pooled.vectors.shape[1]}; run `vcl index build`"
            )
        self.remove(video_id)
        number, first, count = len(self.videos), self._count, len(pooled.vectors)
        self._reserve(first + count)
        self._delta.add(np.ascontiguousarray(pooled.vectors, dtype=np.float32))
        self._owner[first : first + count] = number
        self._spans[first : first + count] = pooled.spans
        self._is_dead[first : first + count] = False
        self._count = first + count
        self._firsts.append(first)
        self.videos.append(video_id)
        self._number[video_id] = number

    def remove(self, video_id: str) -> None:
        """Forget a video; unknown ids are no error, for a log may name them twice."""
        number = self._number.pop(video_id, None)
        if number is not None:
            self._is_dead[self._positions(number)] = True

    def search(self, vectors: Array, k: int, without: str | None = None) -> Hits:
        """The k nearest living vectors of each query vector, best first.

        `without` leaves one video out: a query that is itself a reference would fill every place.
        """
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        dead = self._is_dead[: self._count]
        if without in self._number:
            dead = dead.copy()
            dead[self._positions(self._number[without])] = True
        found = [
            _search_part(part, offset, queries, k, dead[offset : offset + part.ntotal])
            for part, offset in self._parts()
            if part.ntotal
        ]
        if not found:
            return Hits(
                np.zeros((len(queries), 0), dtype=np.float32),
                np.zeros((len(queries), 0), dtype=np.int64),
                np.zeros((len(queries), 0, 2), dtype=np.float32),
                self.videos,
            )
        scores = np.concatenate([part[0] for part in found], axis=1)
        positions = np.concatenate([part[1] for part in found], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(scores, order, axis=1)
        positions = np.take_along_axis(positions, order, axis=1)
        numbers = np.where(positions >= 0, self._owner[positions], -1)
        return Hits(scores, numbers, self._spans[positions], self.videos)

    def save(self, folder: Path) -> Path:
        """Write a snapshot of the living vectors and make it the current one, atomically."""
        alive = np.flatnonzero(~self._is_dead[: self._count])
        folder.mkdir(parents=True, exist_ok=True)
        # A folder of its own: two builders at once, or one twice, never write into one another's.
        snapshot = Path(tempfile.mkdtemp(dir=folder, prefix=f"{self.key}-{self.seq:012d}-"))
        snapshot.chmod(0o755)
        flat = faiss.IndexFlatIP(self.dimension)
        if len(alive):
            flat.add(self._reconstruct(alive))
        faiss.write_index(flat, str(snapshot / "vectors.faiss"))
        numbers, owner = np.unique(self._owner[alive], return_inverse=True)
        np.save(snapshot / "owner.npy", owner.astype(np.int64))
        np.save(snapshot / "spans.npy", self._spans[alive])
        facts = {
            "key": self.key,
            "dimension": self.dimension,
            "seq": self.seq,
            "stamp": self.stamp,
            "videos": [self.videos[number] for number in numbers],
        }
        (snapshot / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        for file in snapshot.iterdir():
            _sync(file)  # else the pointer could reach the disk before what it points to
        _sync(snapshot)
        previous = current_snapshot(folder, self.key)
        pointer = json.dumps({"snapshot": snapshot.name}).encode()
        write_atomically(folder / f"{self.key}.{CURRENT}", pointer)
        if previous is not None:
            shutil.rmtree(previous, ignore_errors=True)  # mapped files live on in their readers
        return snapshot

    @classmethod
    def load(cls, folder: Path, key: str, dimension: int = 256) -> VideoIndex:
        """The current snapshot, memory-mapped, or an empty index where there is none.

        A snapshot that cannot be read is no loss: an empty index replays the log from its start.
        """
        snapshot = current_snapshot(folder, key)
        while snapshot is not None:
            try:
                return cls._open(snapshot, key, dimension)
            except Exception as error:  # four parsers, each with errors of its own
                newer = current_snapshot(folder, key)
                if newer == snapshot:
                    log.warning("index snapshot %s is not readable: %s", snapshot, error)
                    break
                snapshot = newer  # it was replaced while we opened it
        return cls(key, dimension)

    @classmethod
    def _open(cls, snapshot: Path, key: str, dimension: int) -> VideoIndex:
        facts = json.loads((snapshot / "facts.json").read_text(encoding="utf-8"))
        flags = faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY
        base = faiss.read_index(str(snapshot / "vectors.faiss"), flags)
        owner, spans = np.load(snapshot / "owner.npy"), np.load(snapshot / "spans.npy")
        index = cls(key, dimension)
        index.seq, index.stamp, index.videos = facts["seq"], facts["stamp"], facts["videos"]
        sizes = (base.ntotal, len(owner), len(spans))
        if facts["key"] != key or base.d != dimension or len(set(sizes)) != 1:
            raise ValueError(f"its parts do not fit: {facts['key']}, {base.d}, {sizes}")
        index._number = {video: number for number, video in enumerate(index.videos)}
        index._base, index._owner, index._spans = base, owner, spans
        index._is_dead = np.zeros(len(owner), dtype=bool)
        index._count = len(owner)
        # A snapshot keeps the order of positions, so each video's are one run.
        index._firsts = np.searchsorted(owner, np.arange(len(index.videos))).tolist()
        return index

    def _positions(self, number: int) -> slice:
        is_last = number + 1 == len(self._firsts)
        return slice(self._firsts[number], self._count if is_last else self._firsts[number + 1])

    def _reserve(self, count: int) -> None:
        if count <= len(self._owner):
            return
        extra = max(count, 2 * len(self._owner), 1024) - len(self._owner)
        self._owner = np.concatenate([self._owner, np.zeros(extra, dtype=np.int64)])
        self._spans = np.concatenate([self._spans, np.zeros((extra, 2), dtype=np.float32)])
        self._is_dead = np.concatenate([self._is_dead, np.zeros(extra, dtype=bool)])

    def _parts(self) -> Iterable[tuple[faiss.Index, int]]:
        offset = 0
        if self._base is not None:
            yield self._base, 0
            offset = self._base.ntotal
        yield self._delta, offset

    def _reconstruct(self, positions: NDArray[np.int64]) -> Array:
        rows = [
            part.reconstruct_batch(
                positions[(positions >= offset) & (positions < offset + part.ntotal)] - offset
            )
            for part, offset in self._parts()
            if part.ntotal
        ]
        return np.concatenate(rows).astype(np.float32)


def current_snapshot(folder: Path, key: str) -> Path | None:
    """The snapshot that the pointer names, if both are there."""
    try:
        pointer = json.loads((folder / f"{key}.{CURRENT}").read_text(encoding="utf-8"))
        snapshot = folder / str(pointer["snapshot"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return snapshot if snapshot.is_dir() else None


def _search_part(
    part: faiss.Index, offset: int, queries: Array, k: int, dead: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    parameters = None
    if dead.any():
        bitmap = np.packbits(~dead, bitorder="little")
        selector = faiss.IDSelectorBitmap(part.ntotal, faiss.swig_ptr(bitmap))
        parameters = faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
    scores, positions = part.search(queries, min(k, part.ntotal), params=parameters)
    return scores, np.where(positions >= 0, positions + offset, -1)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
