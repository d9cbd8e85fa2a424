"""Paths on a similarity map: which query frame shows which reference frame, in order.

In: a map, or the matched cells a method has chained. Out: `Path`s, cut where a copy is cut.
Nothing here knows a method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from retrieval.records import Segment, Span
from vcl_plugin.align.matches import TIE, Indices, Map


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """Matched cells of a map: query frame `rows[i]` shows reference frame `columns[i]`.

    `rows` ascend; `columns` ascend too, or descend when the copy is reversed.
    """

    rows: Indices
    columns: Indices

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Seconds, half-open: the last matched frame lasts until its second is over."""
        return (
            float(self.rows[0]),
            float(self.columns.min()),
            float(self.rows[-1] + 1),
            float(self.columns.max() + 1),
        )

    @property
    def is_reversed(self) -> bool:
        return bool(self.columns[-1] < self.columns[0])

    @property
    def seconds(self) -> int:
        """Distinct frames matched, on the side that has fewer of them."""
        return min(len(np.unique(self.rows)), len(np.unique(self.columns)))

    @property
    def slope(self) -> float:
        """Reference seconds per query second of the box."""
        q_start, r_start, q_end, r_end = self.box
        return (r_end - r_start) / (q_end - q_start)

    def mirrored(self, width: int) -> Path:
        """The same path on the map read from its last column to its first."""
        return Path(self.rows, width - 1 - self.columns)

    def __getitem__(self, part: slice) -> Path:
        return Path(self.rows[part], self.columns[part])


def cut_path(path: Path, max_gap: int, max_shift: float, min_length: int) -> list[Path]:
    """The path in pieces: apart where it skips more than `max_gap` seconds of either video, or
    leaves its own line by more than `max_shift` seconds and stays away on both sides.

    >>> rows = np.arange(12)
    >>> jumped = Path(rows, rows + 8 * (rows > 5))
    >>> [piece.box for piece in cut_path(jumped, max_gap=10, max_shift=3, min_length=4)]
    [(0.0, 0.0, 6.0, 6.0), (6.0, 14.0, 12.0, 20.0)]
    """
    if len(path) < 2:
        return [path]
    run = np.diff(path.rows)
    rise = np.diff(path.columns)
    torn = (run > max_gap) | (np.abs(rise) > max_gap)
    shift = np.abs(rise - estimate_speed(path) * run * (-1 if path.is_reversed else 1))
    places = np.flatnonzero(torn | (shift > max_shift)) + 1
    cuts = [0]
    for place in places:
        is_torn = torn[place - 1]
        if is_torn or (place - cuts[-1] >= min_length and len(path) - place >= min_length):
            cuts.append(int(place))
    cuts.append(len(path))
    return [path[start:end] for start, end in pairwise(cuts)]


def trim_path(path: Path, similarity: Map, floor: float, share: float) -> list[Path]:
    """The stretches of a path that hold its own level: `share` of the way from the floor to the
    median similarity of its cells.

    Beyond the end of a copy there is often a scene a little like it, and a path follows it as long
    as it is above the floor. What is weak beside the rest is not the copy.
    """
    own = similarity[path.rows, path.columns]
    level = floor + share * (float(np.median(own)) - floor)
    worth = own - np.float32(level)
    return [path[part] for part in best_runs(worth, np.zeros(len(path)), 0.0) if worth[part].any()]


def straighten_path(path: Path, similarity: Map) -> Path:
    """The path on its own line wherever the line matches as well as the path does.

    Within a still every way through is as good as the next, and a path that takes the shortest
    one enters and leaves the copy at the wrong second; the rest of the path knows better.
    """
    speed = estimate_speed(path) * (-1 if path.is_reversed else 1)
    middle = float(np.median(path.columns - speed * path.rows))
    line = np.clip(np.round(middle + speed * path.rows), 0, similarity.shape[1] - 1).astype(np.intp)
    is_tie = similarity[path.rows, line] >= similarity[path.rows, path.columns] - TIE
    columns = np.where(is_tie, line, path.columns)
    turns = np.diff(columns) * (-1 if path.is_reversed else 1)
    # Half on the line and half off it, a path may run back in time; then it stays as it was.
    return Path(path.rows, columns) if (turns >= 0).all() else path


def join_paths(paths: Sequence[Path], max_step: int = 3, max_shift: int = 1) -> list[Path]:
    """Paths that go on where another ends, at most `max_step` seconds later and `max_shift` off
    its diagonal, as one.

    >>> rows = np.arange(5)
    >>> [path.box for path in join_paths([Path(rows + 5, rows + 25), Path(rows, rows + 20)])]
    [(0.0, 20.0, 10.0, 30.0)]
    """
    waiting = sorted(paths, key=lambda path: int(path.rows[0]))
    joined: list[Path] = []
    for path in waiting:
        for place, before in enumerate(joined):
            run = path.rows[0] - before.rows[-1]
            rise = path.columns[0] - before.columns[-1]
            if 1 <= run <= max_step and rise >= 1 and abs(rise - run) <= max_shift:
                joined[place] = Path(
                    np.concatenate([before.rows, path.rows]),
                    np.concatenate([before.columns, path.columns]),
                )
                break
        else:
            joined.append(path)
    return joined


def best_runs(
    worth: NDArray[np.floating], cost: NDArray[np.floating], min_strength: float
) -> list[slice]:
    """Stretches of a chain worth most: the sum of `worth` less the `cost` of the links inside.

    `cost[i]` is paid to go from cell i-1 to cell i. Stretches do not overlap; the best comes first,
    then the best of what is left beside it, until none reaches `min_strength`.
    """
    found: list[tuple[float, slice]] = []
    waiting = [(0, len(worth))]
    while waiting:
        start, end = waiting.pop()
        if end <= start:
            continue
        after = np.cumsum(worth[start:end] - cost[start:end])
        before = after - worth[start:end]  # what the sum was, the link into the cell paid
        lowest = np.minimum.accumulate(before)
        last = int(np.argmax(after - lowest))
        strength = float(after[last] - lowest[last])
        if strength < min_strength:
            continue
        first = int(np.flatnonzero(before[: last + 1] <= lowest[last])[-1])
        found.append((strength, slice(start + first, start + last + 1)))
        waiting += [(start, start + first), (start + last + 1, end)]
    return [part for _, part in sorted(found, key=lambda each: (-each[0], each[1].start))]


def estimate_speed(path: Path) -> float:
    """Reference seconds per query second: the median slope between far-apart cells of the path."""
    gap = max(len(path) // 2, 1)
    run = (path.rows[gap:] - path.rows[:-gap]).astype(np.float64)
    rise = np.abs(path.columns[gap:] - path.columns[:-gap]).astype(np.float64)
    moving = run > 0
    slope = float(np.median(rise[moving] / run[moving])) if moving.any() else 0.0
    return slope if slope > 0 else path.slope


def measure_change(path: Path, similarity: Map, floor: float) -> float:
    """How much the picture changes along a path, in whole scenes: 0 for a still, 1 per clean cut.

    Where both videos move on, a frame is less like its neighbour's partner than like its own; black
    frames and title cards match all around, however long they stand. A change is worth as much as
    the weaker of the two matches around it, in full from half way between the floor and identity:
    beside black frames there is always some frame that is a little like another.
    """
    rows, columns = path.rows, path.columns
    own = similarity[rows, columns]
    crossed = similarity[rows[:-1], columns[1:]] + similarity[rows[1:], columns[:-1]]
    weaker = np.minimum(own[:-1], own[1:])
    trust = np.clip((weaker - floor) / max((1 - floor) / 2, 1e-6), 0, 1)
    return float((trust * (1 - crossed / np.maximum(own[:-1] + own[1:], 1e-6))).sum())


def make_segment(path: Path, similarity: Map, floor: float) -> Segment:
    """The path as a record, its score the mean similarity over the frames that the segment covers,
    so that one with holes scores lower, and lower too when hardly anything changes along it."""
    q_start, r_start, q_end, r_end = path.box
    values = np.clip(similarity[path.rows, path.columns], 0.0, 1.0)
    # In slow motion one reference frame answers several query frames, and a method that takes each
    # reference frame once is not to be blamed for the query frames between: the fuller side counts.
    coverage = max(
        len(np.unique(path.rows)) / (q_end - q_start),
        len(np.unique(path.columns)) / (r_end - r_start),
    )
    # A scene that never changes proves the scene, not the copy: two thirds at one change, all at 3.
    proof = 1 - np.exp(-max(measure_change(path, similarity, floor), 0.0))
    return Segment(
        query=Span(q_start, q_end),
        reference=Span(r_start, r_end),
        score=float(np.clip(values.mean() * coverage * proof, 0.0, 1.0)),
        is_reversed=path.is_reversed,
        speed=estimate_speed(path),
    )


def centre_map(similarity: Map, share: float) -> Map:
    """The map less a share of each row's and each column's excess over the mean of all cells.

    A frame under a heavy edit, or a plain one, is a little like everything: its whole row is
    bright, and what counts is where the row is brighter still.
    """
    if share == 0:
        return similarity
    mean = similarity.mean()
    rows = similarity.mean(axis=1, keepdims=True) - mean
    columns = similarity.mean(axis=0, keepdims=True) - mean
    centred: Map = similarity - share * rows
    centred -= share * columns
    return centred


def background(similarity: Map, cells: int = 6_000) -> tuple[float, float]:
    """Median and spread (a robust standard deviation) of a map, from an even sample of its cells.

    A copy is a thin line on the map, so both describe what unrelated frames of these two videos
    look like to the descriptor, which differs much between videos.
    """
    stride = max(1, int(np.sqrt(similarity.size / cells)))
    sample = similarity[::stride, ::stride]
    middle = float(np.median(sample))
    return middle, 1.4826 * float(np.median(np.abs(sample - middle)))
