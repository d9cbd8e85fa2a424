"""An index in this process: the vectors of a snapshot, changes since, and what was removed.

In: pooled vectors of videos. Out: the nearest of them to a query's vectors.
The replica replays `index_changes` into it. The index is a cache: everything in it can be rebuilt
from the store, and its files are only ever replaced whole.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.errors import FingerprintMismatch
from retrieval.index import snapshots
from retrieval.index.codes import Training, encode_rows
from retrieval.index.index import Hits, Position
from retrieval.index.selftest import SelfTest, run_self_test
from retrieval.index.vectors import (
    CodedVectors,
    ExactVectors,
    Vectors,
    best_of,
    chunks,
    copy_to_gpu,
)
from retrieval.plugins import Array, Pooled

log = logging.getLogger(__name__)

FAST_FROM = 100_000
FEWEST_CODED = 64  # four-bit codes are trained on more rows than the 16 there are


class VideoIndex:
    """FAISS in this process: the base of a snapshot, memory-mapped, and a delta in memory."""

    is_shared = False

    def __init__(self, key: str, dimension: int = 256) -> None:
        self.key = key
        self.dimension = dimension
        self.snapshot: Path | None = None  # what it was loaded from
        self._saved: dict[str, Any] = {}  # facts about that
        self.position = Position()
        self.videos: list[str] = []
        self._number: dict[str, int] = {}  # living videos only
        self._base: Vectors = ExactVectors(self.dimension)
        self._training = Training()
        self._delta = ExactVectors(self.dimension)
        # Video number -> its first position; the next video's first is its end.
        self._firsts: list[int] = []
        # Position in the base -> video number and span, as they are in the snapshot's files.
        self._base_owner: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._base_spans: NDArray[np.float32] = np.zeros((0, 2), dtype=np.float32)
        # The same for the delta. Longer than it: they grow by doubling.
        self._owner: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._spans: NDArray[np.float32] = np.zeros((0, 2), dtype=np.float32)
        self._is_dead: NDArray[np.bool_] = np.zeros(0, dtype=bool)  # of base and delta
        self._living = 0

    def begin_anew(self) -> VideoIndex:
        anew = VideoIndex(self.key, self.dimension)
        # The snapshot is not to be loaded again: what is begun anew is what it lacks.
        anew.snapshot, anew._saved = self.snapshot, self._saved
        return anew

    def serve(self) -> None:
        """Nobody else searches it."""

    def __len__(self) -> int:
        return len(self._number)

    @property
    def vectors(self) -> int:
        return self._living

    @property
    def _count(self) -> int:
        return self._base.count + self._delta.count

    def __contains__(self, video_id: str) -> bool:
        return video_id in self._number

    def add(self, video_id: str, pooled: Pooled) -> None:
        if pooled.vectors.shape[1] != self.dimension:
            raise FingerprintMismatch(
                f"the index holds vectors of {self.dimension} dimensions, video {video_id!r} "
                f"has {pooled.vectors.shape[1]}; run `vcl index build`"
            )
        self.remove(video_id)
        number, count = len(self.videos), len(pooled.vectors)
        first = self._delta.count
        self._reserve(first + count)
        self._owner[first : first + count] = number
        self._spans[first : first + count] = pooled.spans
        self._firsts.append(self._count)
        self._delta.add(pooled.vectors)
        self._living += count
        self.videos.append(video_id)
        self._number[video_id] = number

    def remove(self, video_id: str) -> None:
        number = self._number.pop(video_id, None)
        if number is not None:
            positions = self._positions(number)
            self._is_dead[positions] = True
            self._living -= positions.stop - positions.start

    def commit(self, position: Position) -> None:
        self.position = position

    def search(self, vectors: Array, k: int, without: str | None = None) -> Hits:
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        dead = self._is_dead[: self._count]
        if without in self._number:
            dead = dead.copy()
            dead[self._positions(self._number[without])] = True
        scores: NDArray[np.float32] = np.zeros((len(queries), 0), dtype=np.float32)
        positions: NDArray[np.int64] = np.zeros((len(queries), 0), dtype=np.int64)
        for part, offset in ((self._base, 0), (self._delta, self._base.count)):
            if part.count:
                near, places = part.search(queries, k, dead[offset : offset + part.count])
                scores = np.concatenate([scores, near], axis=1)
                places = np.where(places >= 0, places + offset, -1)
                positions = np.concatenate([positions, places], axis=1)
        scores, positions = best_of(scores, positions, k)
        return Hits(scores, *self._look_up(positions), self.videos)

    def save(self, folder: Path, fast_from: int = FAST_FROM, mode: int = 0o640) -> Path:
        """Write a snapshot of the living vectors and make it the current one, atomically.

        From `fast_from` vectors on, it is trained: searched by codes, not row by row.
        """
        alive = np.flatnonzero(~self._is_dead[: self._count])
        with snapshots.new_snapshot(folder, self.key, self.position.seq, mode) as path:
            numbers, owner = np.unique(self._look_up(alive)[0], return_inverse=True)
            np.save(path / "owner.npy", owner.astype(np.int32))
            np.save(path / "spans.npy", self._look_up(alive)[1])
            videos = [self.videos[number] for number in numbers]
            (path / "videos.json").write_text(json.dumps(videos), encoding="utf-8")
            is_fast = len(alive) >= max(FEWEST_CODED, fast_from)
            base, training, test = (
                self._write_coded(path, alive) if is_fast else self._write_flat(path, alive)
            )
            snapshots.write_facts(
                path,
                snapshots.SnapshotFacts(
                    key=self.key,
                    dimension=self.dimension,
                    seq=self.position.seq,
                    stamp=self.position.stamp,
                    kind=base.kind,
                    videos=len(videos),
                    vectors=len(alive),
                    made_at=datetime.now(UTC).isoformat(timespec="seconds"),
                    trained_on=training.rows,
                    trained_recall=training.recall,
                    probes=base.probes if isinstance(base, CodedVectors) else 0,
                    self_test=asdict(test),
                    unreadable=self.position.unreadable,
                ),
            )
        return path

    @classmethod
    def load(cls, folder: Path, key: str, dimension: int = 256, device: str = "cpu") -> VideoIndex:
        """The current snapshot, memory-mapped, or an empty index where there is none.

        A snapshot that cannot be read is no loss: an empty index replays the log from its start.
        """
        snapshot = snapshots.current_snapshot(folder, key)
        while snapshot is not None:
            try:
                return cls._open(snapshot, key, dimension, device)
            except Exception as error:  # four parsers, each with errors of its own
                newer = snapshots.current_snapshot(folder, key)
                if newer == snapshot:
                    log.warning("index snapshot %s is not readable: %s", snapshot, error)
                    if not _is_shortage(error):
                        snapshots.set_aside(folder, key, snapshot)
                    break
                snapshot = newer  # it was replaced while we opened it
        return cls(key, dimension)

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"kind": self._base.kind, "delta_vectors": self._delta.count}
        facts["dead_vectors"] = self._count - self._living
        facts |= self._saved
        if isinstance(self._base, CodedVectors):
            facts |= {"lists": self._base.lists, "probes": self._base.probes}
        return facts

    def _write_flat(
        self, path: Path, alive: NDArray[np.int64]
    ) -> tuple[Vectors, Training, SelfTest]:
        flat = ExactVectors(self.dimension)
        for rows in self._read(alive):
            flat.add(rows)
        flat.write(path / "vectors.faiss")
        return flat, Training(), run_self_test(flat)

    def _write_coded(
        self, path: Path, alive: NDArray[np.int64]
    ) -> tuple[Vectors, Training, SelfTest]:
        file = np.lib.format.open_memmap(
            path / "vectors.npy", "w+", dtype=np.float16, shape=(len(alive), self.dimension)
        )
        first = 0
        for rows in self._read(alive):
            file[first : first + len(rows)] = rows
            first += len(rows)
        file.flush()
        coded, training, test = encode_rows(file, self._base, self._training)
        faiss.write_index(coded.codes, str(path / "codes.faiss"))
        return coded, training, test

    @classmethod
    def _open(cls, snapshot: Path, key: str, dimension: int, device: str) -> VideoIndex:
        facts = snapshots.read_facts(snapshot)
        index = cls(key, dimension)
        index.snapshot = snapshot
        base: Vectors
        if facts.kind == CodedVectors.kind:
            base = CodedVectors.open(
                snapshot / "codes.faiss", snapshot / "vectors.npy", facts.probes
            )
        else:
            base = ExactVectors.open(snapshot / "vectors.faiss", dimension)
        owner = np.load(snapshot / "owner.npy", mmap_mode="r")
        spans = np.load(snapshot / "spans.npy", mmap_mode="r")
        videos = json.loads((snapshot / "videos.json").read_text(encoding="utf-8"))
        sizes = (base.count, len(owner), len(spans), facts.vectors)
        if (facts.key, facts.dimension, facts.videos) != (key, dimension, len(videos)):
            raise ValueError(f"it is of {facts.key}, {facts.dimension}, {facts.videos} videos")
        if len(set(sizes)) != 1:
            raise ValueError(f"its parts do not fit: {sizes}")
        index._saved = _describe(snapshot, facts)
        index.position = Position(facts.seq, facts.stamp, facts.unreadable)
        index.videos = videos
        index._number = {video: number for number, video in enumerate(videos)}
        index._base = copy_to_gpu(base, device)
        index._base_owner, index._base_spans = owner, spans
        index._training = Training(facts.trained_on, facts.trained_recall)
        index._is_dead = np.zeros(len(owner), dtype=bool)
        index._living = len(owner)
        # A snapshot keeps the order of positions, so each video's are one run.
        index._firsts = np.searchsorted(owner, np.arange(len(videos))).tolist()
        return index

    def _positions(self, number: int) -> slice:
        is_last = number + 1 == len(self._firsts)
        return slice(self._firsts[number], self._count if is_last else self._firsts[number + 1])

    def _look_up(
        self, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Video numbers and spans of positions; -1 has number -1."""
        numbers = np.full(positions.shape, -1, dtype=np.int64)
        spans = np.zeros((*positions.shape, 2), dtype=np.float32)
        in_base = (positions >= 0) & (positions < self._base.count)
        numbers[in_base] = self._base_owner[positions[in_base]]
        spans[in_base] = self._base_spans[positions[in_base]]
        in_delta = positions >= self._base.count
        places = positions[in_delta] - self._base.count
        numbers[in_delta] = self._owner[places]
        spans[in_delta] = self._spans[places]
        return numbers, spans

    def _reserve(self, delta: int) -> None:
        if delta <= len(self._owner):
            return
        extra = max(delta, 2 * len(self._owner), 1024) - len(self._owner)
        self._owner = np.concatenate([self._owner, np.zeros(extra, dtype=np.int32)])
        self._spans = np.concatenate([self._spans, np.zeros((extra, 2), dtype=np.float32)])
        self._is_dead = np.concatenate([self._is_dead, np.zeros(extra, dtype=bool)])

    def _read(self, positions: NDArray[np.int64]) -> Iterator[Array]:
        """Rows at ascending positions, a chunk at a time."""
        for chunk in chunks(len(positions)):
            chosen = positions[chunk]
            split = int(np.searchsorted(chosen, self._base.count))
            if split:
                yield self._base.read(chosen[:split])
            if split < len(chosen):
                yield self._delta.read(chosen[split:] - self._base.count)


def _describe(snapshot: Path, facts: snapshots.SnapshotFacts) -> dict[str, Any]:
    sizes = snapshots.size_of(snapshot)
    # Where rows are re-ranked from; a flat index has no other vectors than those it searches.
    rows = sizes.pop("vectors.npy", 0)
    return {
        "snapshot": snapshot.name,
        "snapshot_made_at": facts.made_at,
        "snapshot_vectors": facts.vectors,
        "bytes_per_window": round(sum(sizes.values()) / max(1, facts.vectors), 1),
        "reranking_bytes_per_window": round(rows / max(1, facts.vectors), 1),
        "self_test": facts.self_test,
    }


def _is_shortage(error: Exception) -> bool:
    """Whether this process lacks something, and the snapshot may be as good as ever."""
    lacking = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in lacking
