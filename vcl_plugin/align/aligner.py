"""What the classic methods share: a map goes in, a method finds paths, segments come out.

In: two descriptor arrays, or their cosine map. Out: `Segment`s of both directions, none repeated.
The methods beside this file each say how paths are found; `retrieval.plugins` loads them by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from retrieval.plugins import Array
from retrieval.records import Segment, Span

Map = NDArray[np.float32]
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """Matched cells of a map: query frame `rows[i]` shows reference frame `columns[i]`.

    `rows` ascend; `columns` ascend too, or descend when the copy is reversed. `strength` is the
    evidence the method has gathered along the path, comparable within one map only.
    """

    rows: Indices
    columns: Indices
    strength: float

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Seconds, half-open: the last matched frame lasts until its second is over."""
        return (
            float(self.rows.min()),
            float(self.columns.min()),
            float(self.rows.max() + 1),
            float(self.columns.max() + 1),
        )

    @property
    def is_reversed(self) -> bool:
        return bool(self.columns[-1] < self.columns[0])

    def mirrored(self, width: int) -> Path:
        """The same path on the map read from its last column to its first."""
        return Path(self.rows, width - 1 - self.columns, self.strength)


@dataclass(frozen=True)
class Aligner:
    """A localizer that works on the cosine map. A method adds `find_paths` and its parameters.

    `max_overlap`: of two segments that share more than this much of the smaller one, the weaker
    goes. `reversed_margin`: a reversed path must be this many times stronger than a forward one
    over the same seconds, because a still shot matches in both directions.
    """

    name: ClassVar[str]
    revision: ClassVar[int] = 1

    max_overlap: float = 0.3
    reversed_margin: float = 1.25
    find_reversed: bool = True

    @property
    def fingerprint(self) -> str:
        facts = json.dumps({"revision": self.revision, **asdict(self)}, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    def find_paths(self, similarity: Map) -> list[Path]:
        """Forward paths of a map, strongest first; the map is never changed."""
        raise NotImplementedError

    def localize(self, query: Array, reference: Array) -> list[Segment]:
        return self.localize_map(cosine_map(query, reference))

    def localize_many(self, query: Array, references: Sequence[Array]) -> list[list[Segment]]:
        return [self.localize(query, reference) for reference in references]

    def localize_map(self, similarity: Map) -> list[Segment]:
        """Segments of both directions, strongest first."""
        found = [
            (path.strength * self.reversed_margin, path) for path in self.find_paths(similarity)
        ]
        if self.find_reversed:
            width = similarity.shape[1]
            for path in self.find_paths(similarity[:, ::-1]):
                found.append((path.strength, path.mirrored(width)))
        found.sort(key=lambda each: -each[0])
        kept: list[Path] = []
        for _, path in found:
            if all(_shared(path.box, other.box) <= self.max_overlap for other in kept):
                kept.append(path)
        return [make_segment(path, similarity) for path in kept]


def cosine_map(query: Array, reference: Array) -> Map:
    """Cosine of every query frame (rows) with every reference frame (columns)."""
    similarity: Map = _unit_rows(query) @ _unit_rows(reference).T
    return similarity


def make_segment(path: Path, similarity: Map) -> Segment:
    """The path as a record. Its score is the mean similarity over the frames the segment covers,
    so a path with holes scores lower than one without."""
    q_start, r_start, q_end, r_end = path.box
    values = np.clip(similarity[path.rows, path.columns], 0.0, 1.0)
    frames = max(len(np.unique(path.rows)), 1)
    coverage = frames / (q_end - q_start)
    if r_end - r_start < q_end - q_start:
        # In slow motion one reference frame answers several query frames, and a method that takes
        # each reference frame once is not to be blamed for the query frames between.
        coverage = max(coverage, len(np.unique(path.columns)) / (r_end - r_start))
    return Segment(
        query=Span(q_start, q_end),
        reference=Span(r_start, r_end),
        score=float(np.clip(values.mean() * coverage, 0.0, 1.0)),
        is_reversed=path.is_reversed,
        speed=estimate_speed(path),
    )


def estimate_speed(path: Path) -> float:
    """Reference seconds per query second: the median slope between far-apart cells of the path."""
    count = len(path.rows)
    gap = max(count // 2, 1)
    run = (path.rows[gap:] - path.rows[:-gap]).astype(np.float64)
    rise = np.abs(path.columns[gap:] - path.columns[:-gap]).astype(np.float64)
    moving = run > 0
    slope = float(np.median(rise[moving] / run[moving])) if moving.any() else 0.0
    if slope > 0:
        return slope
    q_start, r_start, q_end, r_end = path.box
    return (r_end - r_start) / (q_end - q_start)


def background(similarity: Map, cells: int = 40_000) -> tuple[float, float]:
    """Median and spread (a robust standard deviation) of a map, from an even sample of its cells.

    A copy is a thin line on the map, so both describe what unrelated frames of these two videos
    look like to the descriptor, which differs much between videos.
    """
    stride = max(1, int(np.sqrt(similarity.size / cells)))
    sample = similarity[::stride, ::stride]
    middle = float(np.median(sample))
    return middle, 1.4826 * float(np.median(np.abs(sample - middle)))


def _shared(one: Sequence[float], other: Sequence[float]) -> float:
    """Area two boxes share, as a fraction of the smaller box."""
    height = min(one[2], other[2]) - max(one[0], other[0])
    width = min(one[3], other[3]) - max(one[1], other[1])
    if height <= 0 or width <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return height * width / min(areas)


def _unit_rows(descriptors: Array) -> Array:
    rows = np.ascontiguousarray(descriptors, dtype=np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
