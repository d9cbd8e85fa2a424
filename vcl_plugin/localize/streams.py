"""Streams: what two videos have in common, second against second, in nine maps.

In: two descriptor arrays with rows of unit length. Out: any window of the nine maps (`STREAMS`),
and which windows may hold a copy at all.

Appearance alone does not tell a copy: two moments of one fixed camera are more alike than a frame
and its crop. So each cosine is also told relative to its row and its column, and what *changes*
around a second is compared by itself. An edit that stays the same for a whole clip drops out there.
Where a camera glides slowly, a second and the next differ by a hundredth; which of them is shown
is still seen by the ridge of the map, the cells that no other near them in their row surpasses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from retrieval.plugins import Array

STREAMS = (
    "cosine",
    "row",  # how far the cosine lies above its row's mean, in deviations
    "column",  # the same for its column
    "dual",  # softmax over the row times softmax over the column, as in the paper
    "change",  # cosine of what is left of both frames without their surroundings
    "query_pace",  # how much the query changes around its second
    "reference_pace",
    "row_ridge",  # how close the cosine comes to the highest one near it in its row
    "column_ridge",  # the same for its column
)
TEMPERATURE = 0.07  # of both softmaxes
SURROUNDINGS = 4  # seconds on each side
STILL = 0.05  # a change smaller than this is noise
LEAST_DEVIATION = 0.03
RIDGE_SECONDS, RIDGE = 13, 0.01  # how far a ridge is looked for; a cosine so much lower is off it
LOWEST, HIGHEST, UNIT = -2.0, 8.0, 4.0  # of row and column, in deviations
BLOCK_CELLS = 2_000_000  # of a map that is held at once


@dataclass(frozen=True, eq=False)
class Side:
    """One video: its frames, their changes, its pace."""

    frames: Array  # (n, d)
    changes: Array  # (n, d)
    pace: Array  # (n,)

    @classmethod
    def of(cls, frames: Array) -> Side:
        return cls(frames, measure_changes(frames), measure_pace(frames))


@dataclass(frozen=True, eq=False)
class Margins:
    """Sums over the rows, or over the columns, of a whole map."""

    mean: Array
    deviation: Array
    weight: Array  # sum of the softmax's exponentials

    @classmethod
    def of(cls, cells: int, total: Array, squares: Array, weight: Array) -> Margins:
        mean: Array = total / np.float32(cells)
        variance = np.maximum(squares / np.float32(cells) - mean**2, 0)
        return cls(mean, np.sqrt(variance) + np.float32(LEAST_DEVIATION), weight + np.float32(1e-6))


class PairStreams:
    """The maps of one pair. Nothing of the size of a whole map is kept."""

    def __init__(self, query: Array, reference: Array) -> None:
        self.query, self.reference = Side.of(query), Side.of(reference)
        self.shape = (len(query), len(reference))
        self.rows, self.columns = self._measure_margins()

    def window(self, rows: slice, columns: slice) -> Array:
        """(streams, rows, columns) of a part of the map."""
        query, reference = self.query, self.reference
        cosine = query.frames[rows] @ reference.frames[columns].T
        maps = np.empty((len(STREAMS), *cosine.shape), np.float32)
        maps[0] = cosine
        maps[1], maps[2] = self._deviations(cosine, rows, columns)
        likeness = np.exp((cosine - 1) / np.float32(TEMPERATURE))
        maps[3] = likeness / np.sqrt(
            self.rows.weight[rows, None] * self.columns.weight[None, columns]
        )
        maps[4] = query.changes[rows] @ reference.changes[columns].T
        maps[5] = query.pace[rows, None]
        maps[6] = reference.pace[None, columns]
        for place, axis in ((7, 1), (8, 0)):
            highest = maximum_filter1d(cosine, RIDGE_SECONDS, axis=axis, mode="nearest")
            maps[place] = np.exp((cosine - highest) / np.float32(RIDGE))
        return maps

    def outstanding(self, rows: slice, alike: float, deviations: float) -> NDArray[np.bool_]:
        """Cells of these rows so alike, and so far above the mean of their row and column."""
        cosine = self.query.frames[rows] @ self.reference.frames.T
        by_row = self.rows.mean[rows] + deviations * self.rows.deviation[rows]
        by_column = self.columns.mean + deviations * self.columns.deviation
        floor = np.maximum(np.maximum(by_row[:, None], by_column[None]), np.float32(alike))
        outstanding: NDArray[np.bool_] = cosine > floor
        return outstanding

    def _deviations(self, cosine: Array, rows: slice, columns: slice) -> tuple[Array, Array]:
        by_row = (cosine - self.rows.mean[rows, None]) / self.rows.deviation[rows, None]
        by_column = (cosine - self.columns.mean[columns]) / self.columns.deviation[columns]
        return np.clip(by_row, LOWEST, HIGHEST) / UNIT, np.clip(by_column, LOWEST, HIGHEST) / UNIT

    def _measure_margins(self) -> tuple[Margins, Margins]:
        """Of the whole map, a block of rows at a time."""
        height, width = self.shape
        by_row = np.zeros((3, height), np.float32)
        by_column = np.zeros((3, width), np.float32)
        for rows in blocks(height, width):
            cosine = self.query.frames[rows] @ self.reference.frames.T
            likeness = np.exp((cosine - 1) / np.float32(TEMPERATURE))
            for place, values in enumerate((cosine, cosine**2, likeness)):
                by_row[place, rows] = values.sum(axis=1)
                by_column[place] += values.sum(axis=0)
        return Margins.of(width, *by_row), Margins.of(height, *by_column)


def blocks(height: int, width: int) -> list[slice]:
    """Rows of a map in blocks of at most `BLOCK_CELLS` cells."""
    step = max(1, BLOCK_CELLS // width)
    return [slice(low, min(low + step, height)) for low in range(0, height, step)]


def measure_changes(frames: Array) -> Array:
    """What distinguishes each frame from the seconds around it, of at most unit length.

    In a still scene next to nothing is left, and it stays short.
    """
    count = len(frames)
    sums = np.zeros((count + 1, frames.shape[1]), np.float64)
    np.cumsum(frames, axis=0, out=sums[1:])
    low = np.clip(np.arange(count) - SURROUNDINGS, 0, count)
    high = np.clip(np.arange(count) + SURROUNDINGS + 1, 0, count)
    left = frames - ((sums[high] - sums[low]) / (high - low)[:, None]).astype(np.float32)
    lengths = np.linalg.norm(left, axis=1, keepdims=True)
    changes: Array = left / (lengths + np.float32(STILL))
    return changes


def measure_pace(frames: Array) -> NDArray[np.float32]:
    """How much each second differs from the one before and the one after, at most 1."""
    if len(frames) < 2:
        return np.zeros(len(frames), np.float32)
    steps = 1 - (frames[1:] * frames[:-1]).sum(axis=1)
    both = np.concatenate([steps[:1], steps]) + np.concatenate([steps, steps[-1:]])
    return np.minimum(both, 1.0).astype(np.float32)
