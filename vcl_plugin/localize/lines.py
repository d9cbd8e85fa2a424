"""Lines: cells that were read as copied, put together to segments.

In: cells of a map (`Cells`), each with the probability that it lies on a copy's line.
Out: `Segment`s. Cells that touch belong to one copy. Its ends in the query are where the
probability falls below a half; its ends in the reference are where its line is then. Its score is
the mean over its seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from retrieval.records import Segment, Span

LIKELY = 0.4  # cells from here on hold a line together
SURE = 0.5  # a line's ends are its first and last such second
SHORTEST = 2  # seconds, on both sides
MEET = 0.6  # seconds; a line that ends so close to its outermost sure cell ends with it
END_SECONDS = 6  # of the query, at either end, that say where the line begins and ends
# Cells after a cell, in the order of rows and columns, that touch it.
AFTER = ((0, 1), (1, -1), (1, 0), (1, 1))


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of a map with `width` columns: sorted by row and column, none twice."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    chances: NDArray[np.float32]
    width: int

    @classmethod
    def above(cls, parts: list[tuple[int, int, NDArray[np.float32]]], width: int) -> Cells:
        """The cells of at least `LIKELY` of windows that do not overlap: (row, column, chances)."""
        rows, columns, chances = [], [], []
        for row, column, window in parts:
            down, across = np.nonzero(window >= LIKELY)
            rows.append(down + row)
            columns.append(across + column)
            chances.append(window[down, across])
        if not rows:
            empty = np.zeros(0, np.int64)
            return cls(empty, empty, np.zeros(0, np.float32), width)
        found = np.concatenate(rows), np.concatenate(columns)
        order = np.argsort(found[0] * width + found[1])
        return cls(found[0][order], found[1][order], np.concatenate(chances)[order], width)

    def __len__(self) -> int:
        return len(self.rows)

    def groups(self) -> list[NDArray[np.intp]]:
        """Numbers of the cells of each connected group, sorted."""
        if not len(self):
            return []
        keys = self.rows * self.width + self.columns
        ones, others = [], []
        for down, across in AFTER:
            columns = self.columns + across
            sought = (self.rows + down) * self.width + columns
            place = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
            is_there = (keys[place] == sought) & (columns >= 0) & (columns < self.width)
            ones.append(np.flatnonzero(is_there))
            others.append(place[is_there])
        one, other = np.concatenate(ones), np.concatenate(others)
        graph = coo_matrix((np.ones(len(one), bool), (one, other)), (len(keys), len(keys)))
        count, labels = connected_components(graph, directed=False)
        order = np.argsort(labels, kind="stable")
        return np.split(order, np.searchsorted(labels[order], np.arange(1, count)))


def find_segments(cells: Cells, min_score: float) -> list[Segment]:
    """The copies that the cells show, in the order of the query.

    >>> rows = np.arange(5)
    >>> cells = Cells(rows, rows + 20, np.full(5, 0.75, np.float32), 40)
    >>> [(each.box, each.score) for each in find_segments(cells, 0.5)]
    [((0.0, 20.0, 5.0, 25.0), 0.75)]
    """
    found = []
    for group in cells.groups():
        segment = _make_segment(cells, group)
        if segment is not None and segment.score >= min_score:
            found.append(segment)
    return sorted(found, key=lambda each: each.box)


def _make_segment(cells: Cells, group: NDArray[np.intp]) -> Segment | None:
    rows, columns, chances = cells.rows[group], cells.columns[group], cells.chances[group]
    is_sure = chances > SURE
    if not is_sure.any():
        return None
    q_start, q_end = int(rows[is_sure].min()), int(rows[is_sure].max()) + 1
    r_start, r_end = int(columns[is_sure].min()), int(columns[is_sure].max()) + 1
    if min(q_end - q_start, r_end - r_start) < SHORTEST:
        return None
    by_row = _best(rows - q_start, chances, q_end - q_start)
    by_column = _best(columns - r_start, chances, r_end - r_start)
    score = float(by_row.mean() + by_column.mean()) / 2
    first, last = _trace_ends(rows - q_start, columns, chances, q_end - q_start)
    low, high = max(min(first, last), float(r_start)), min(max(first, last), float(r_end))
    # Cells beyond an end are dark, so the middle of the last ones lies up to half a second inside.
    low = float(r_start) if low - r_start <= MEET else low
    high = float(r_end) if r_end - high <= MEET else high
    if high - low < 1:  # no line, but a patch
        low, high = float(r_start), float(r_end)
    return Segment(
        Span(float(q_start), float(q_end)),
        Span(low, high),
        min(score, 1.0),
        is_reversed=last < first,
        speed=(high - low) / (q_end - q_start),
    )


def _best(
    places: NDArray[np.int64], chances: NDArray[np.float32], length: int
) -> NDArray[np.float32]:
    """The highest chance at each place; 0 where there is none."""
    best = np.zeros(length, np.float32)
    is_inside = (places >= 0) & (places < length)
    np.maximum.at(best, places[is_inside], chances[is_inside])
    return best


def _trace_ends(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    chances: NDArray[np.float32],
    length: int,
) -> tuple[float, float]:
    """Where the line is in the reference when the segment begins and when it ends in the query.

    A line is some cells wide, so its first and last columns lie beyond its ends. The middle of each
    row does not; near either end a straight line goes through these middles.
    """
    is_inside = (rows >= 0) & (rows < length)
    rows, columns, chances = rows[is_inside], columns[is_inside], chances[is_inside]
    weights = np.bincount(rows, chances, length)
    seconds = np.flatnonzero(weights)
    middles = np.bincount(rows, chances * (columns + 0.5), length)[seconds] / weights[seconds]
    if len(seconds) < 2:
        return float(middles[0]), float(middles[0])
    clock = seconds + 0.5
    slope = float(np.polyfit(clock, middles, 1, w=np.sqrt(weights[seconds]))[0])
    first = (middles - slope * clock)[:END_SECONDS].mean()
    last = (middles - slope * (clock - length))[-END_SECONDS:].mean()
    return float(first), float(last)
