"""The FAISS index of all references: a base file, changes since, and what was removed.

In: pooled vectors of reference videos. Out: the nearest of them to a query's vectors.
Called by the engine, which replays `reference_changes` into it. The index is a cache: everything
in it can be rebuilt from the store, and its file is only ever replaced whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.errors import FingerprintMismatch
from retrieval.plugins import Array, Pooled
from retrieval.store import write_atomically

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


class ReferenceIndex:
    """Exact inner-product search over a memory-mapped base and a delta in memory."""

    def __init__(self, key: str, dimension: int = 256) -> None:
        self.key = key  # descriptor and pooler that made the vectors
        self.dimension = dimension
        self.seq = 0  # last change of the log that is in here
        self.videos: list[str] = []
        self._number: dict[str, int] = {}  # living videos only
        self._base: faiss.Index | None = None
        self._delta = faiss.IndexFlatIP(dimension)
        self._owner = np.zeros(0, dtype=np.int64)  # position -> video number
        self._spans = np.zeros((0, 2), dtype=np.float32)
        self._is_dead = np.zeros(0, dtype=bool)

    def __len__(self) -> int:
        """Living videos."""
        return len(self._number)

    @property
    def vectors(self) -> int:
        return int((~self._is_dead).sum())

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
        number = len(self.videos)
        self.videos.append(video_id)
        self._number[video_id] = number
        count = len(pooled.vectors)
        self._delta.add(np.ascontiguousarray(pooled.vectors, dtype=np.float32))
        self._owner = np.concatenate([self._owner, np.full(count, number, dtype=np.int64)])
        self._spans = np.concatenate([self._spans, pooled.spans.astype(np.float32)])
        self._is_dead = np.concatenate([self._is_dead, np.zeros(count, dtype=bool)])

    def remove(self, video_id: str) -> None:
        """Forget a video; unknown ids are no error, for a log may name them twice."""
        number = self._number.pop(video_id, None)
        if number is not None:
            self._is_dead[self._owner == number] = True

    def search(self, vectors: Array, k: int) -> Hits:
        """The k nearest living vectors of each query vector, best first."""
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        found = [
            self._search_part(part, offset, queries, k)
            for part, offset in self._parts()
            if part.ntotal
        ]
        if not found:
            empty = np.zeros((len(queries), 0))
            return Hits(
                empty.astype(np.float32),
                empty.astype(np.int64),
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
        alive = np.flatnonzero(~self._is_dead)
        snapshot = folder / f"{self.key}-{self.seq:012d}-{os.getpid()}"
        shutil.rmtree(snapshot, ignore_errors=True)
        snapshot.mkdir(parents=True)
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
            "videos": [self.videos[number] for number in numbers],
        }
        (snapshot / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        previous = current_snapshot(folder, self.key)
        pointer = json.dumps({"snapshot": snapshot.name}).encode()
        write_atomically(folder / f"{self.key}.{CURRENT}", pointer)
        if previous is not None and previous != snapshot:
            shutil.rmtree(previous, ignore_errors=True)  # mapped files live on in their readers
        return snapshot

    @classmethod
    def load(cls, folder: Path, key: str, dimension: int = 256) -> ReferenceIndex:
        """The current snapshot, memory-mapped, or an empty index where there is none."""
        index = cls(key, dimension)
        snapshot = current_snapshot(folder, key)
        if snapshot is None:
            return index
        try:
            facts = json.loads((snapshot / "facts.json").read_text(encoding="utf-8"))
            flags = faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY
            base = faiss.read_index(str(snapshot / "vectors.faiss"), flags)
            owner, spans = np.load(snapshot / "owner.npy"), np.load(snapshot / "spans.npy")
        except (OSError, RuntimeError, ValueError):
            return index  # a cache that cannot be read is rebuilt from the log
        index.seq = facts["seq"]
        index.videos = facts["videos"]
        index._number = {video: number for number, video in enumerate(index.videos)}
        index._base = base
        index._owner, index._spans = owner, spans
        index._is_dead = np.zeros(len(owner), dtype=bool)
        return index

    def _parts(self) -> Iterable[tuple[faiss.Index, int]]:
        offset = 0
        if self._base is not None:
            yield self._base, 0
            offset = self._base.ntotal
        yield self._delta, offset

    def _search_part(
        self, part: faiss.Index, offset: int, queries: Array, k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        dead = self._is_dead[offset : offset + part.ntotal]
        parameters = None
        if dead.any():
            bitmap = np.packbits(~dead, bitorder="little")
            selector = faiss.IDSelectorBitmap(part.ntotal, faiss.swig_ptr(bitmap))
            parameters = faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
        scores, positions = part.search(queries, min(k, part.ntotal), params=parameters)
        return scores, np.where(positions >= 0, positions + offset, -1)

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
    pointer = folder / f"{key}.{CURRENT}"
    if not pointer.is_file():
        return None
    snapshot = folder / str(json.loads(pointer.read_text(encoding="utf-8"))["snapshot"])
    return snapshot if snapshot.is_dir() else None
