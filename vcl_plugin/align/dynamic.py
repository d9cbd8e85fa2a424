"""Dynamic programming: local alignment of the two videos over every cell of the map.

In: a similarity map. Out: `Path`s that share no cell.
Loaded by the name "dp" (Chou et al., "Pattern-based near-duplicate video retrieval and
localization on web-scale videos", IEEE Transactions on Multimedia 2015; the recursion is that of
Smith and Waterman, 1981).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcl_plugin.align.aligner import Aligner
from vcl_plugin.align.matches import Map, Matches
from vcl_plugin.align.paths import Path

MOST_COLUMNS = 3  # the farthest a path may move on the reference within one query second


@dataclass(frozen=True)
class DynamicProgramming(Aligner):
    """A path moves one query second and 0 to 3 reference seconds at a time. It gains the
    similarity above the floor, loses `miss_cost` where frames do not match, and pays
    `shift_cost` for every second by which the two videos drift apart.
    """

    name: ClassVar[str] = "dp"

    miss_cost: float = 0.1
    shift_cost: float = 0.05

    def find_paths(self, matches: Matches) -> list[Path]:
        gain = matches.as_map(-self.miss_cost)
        totals = self._accumulate(gain)
        return self._read_paths(gain, totals)

    def _accumulate(self, gain: Map) -> Map:
        """The best sum of a path that ends in each cell, 0 where none is worth its way.

        The first row and the first columns belong to no frame: `totals[i + 1, j + MOST_COLUMNS]`
        is cell (i, j).
        """
        rows, width = gain.shape
        shift = np.float32(self.shift_cost)
        totals = np.zeros((rows + 1, width + MOST_COLUMNS), dtype=np.float32)
        best, other = np.empty(width, np.float32), np.empty(width, np.float32)
        for row in range(rows):
            before = totals[row]
            # Drifting by one second: the reference stands still, or moves two seconds.
            np.maximum(before[3:], before[1:-2], out=best)
            np.subtract(before[:-3], shift, out=other)  # by two: it moves three
            np.maximum(best, other, out=best)
            best -= shift
            np.maximum(best, before[2:-1], out=best)
            best += gain[row]
            np.maximum(best, 0, out=totals[row + 1, MOST_COLUMNS:])
        return totals

    def _read_paths(self, gain: Map, totals: Map) -> list[Path]:
        """Back from every peak, strongest first, until the start or a cell already taken."""
        sums = totals[1:, MOST_COLUMNS:]
        is_end = (sums >= self.min_strength) & (gain > 0)
        # A path that can still grow does not end: its next cell on the diagonal is worth more.
        is_end[:-1, :-1] &= sums[1:, 1:] <= sums[:-1, :-1]
        ends = np.flatnonzero(is_end)
        width = gain.shape[1]
        taken = np.zeros(gain.shape, dtype=bool)
        paths = []
        for end in ends[np.argsort(-sums.ravel()[ends], kind="stable")].tolist():
            row, column = divmod(end, width)
            cells = []
            while row >= 0 and column >= 0 and totals[row + 1, column + MOST_COLUMNS] > 0:
                if taken[row, column]:
                    break
                cells.append((row, column))
                column -= self._step(totals[row, column : column + MOST_COLUMNS + 1])
                row -= 1
            if len(cells) < self.min_length:
                continue
            trace = np.array(cells[::-1])
            for drift in (-1, 0, 1):  # a path beside a taken one is the same copy
                beside = np.clip(trace[:, 1] + drift, 0, width - 1)
                taken[trace[:, 0], beside] = True
            matched = trace[gain[trace[:, 0], trace[:, 1]] > 0]
            if len(matched):
                paths.append(Path(matched[:, 0], matched[:, 1]))
        return paths

    def _step(self, before: Map) -> int:
        """How many columns back the best predecessor lies; `before` ends in the same column."""
        three, two, one, none = before.tolist()
        sums = (
            one,
            none - self.shift_cost,
            two - self.shift_cost,
            three - 2 * self.shift_cost,
        )
        return (1, 0, 2, 3)[sums.index(max(sums))]
