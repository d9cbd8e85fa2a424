"""Dynamic time warping: one monotone alignment of both videos, then those it leaves unexplained.

In: a similarity map. Out: `Path`s, the stretches of each alignment on which frames match.
Loaded by the name "dtw".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcl_plugin.align.aligner import Aligner
from vcl_plugin.align.matches import Indices, Map, Matches
from vcl_plugin.align.paths import Path, best_runs, join_paths


@dataclass(frozen=True)
class TimeWarping(Aligner):
    """The warping path that gathers most similarity above the floor; its stretches, less
    `skip_cost` for frames passed over and `shift_cost` for drifting, are the copies. What was found
    is taken off the map and the rest is warped again, at most `max_rounds` times, because copies
    need not come in the same order in both videos.
    """

    name: ClassVar[str] = "dtw"

    skip_cost: float = 0.03
    shift_cost: float = 0.05
    max_rounds: int = 4

    def find_paths(self, matches: Matches) -> list[Path]:
        # A frame that matches nothing adds nothing to any warping path: leaving its row or column
        # out changes no sum, and on most pairs it leaves little to warp.
        paths: list[Path] = []
        for _ in range(self.max_rounds):
            rows, columns = np.unique(matches.rows), np.unique(matches.columns)
            if min(len(rows), len(columns)) < self.min_length:
                break
            if len(rows) == len(matches) and (np.diff(matches.columns) > 0).all():
                # Of a clean copy every match follows the last: the best path is all of them.
                found = self._split(Path(matches.rows, matches.columns), matches.worth)
            else:
                gain = np.zeros((len(rows), len(columns)), dtype=np.float32)
                places = (
                    np.searchsorted(rows, matches.rows),
                    np.searchsorted(columns, matches.columns),
                )
                gain[places] = matches.worth
                cells = warp(gain)
                found = self._split(Path(rows[cells[0]], columns[cells[1]]), gain[cells])
            if not found:
                break
            paths += found
            explained = np.concatenate([path.rows for path in found])
            matches = matches.take(~np.isin(matches.rows, explained))
        # Of two copies of the same seconds a warping path may take the head of one and the tail of
        # the other; the next round takes what is left, and each tail finds its head again here.
        return join_paths(paths)

    def _split(self, path: Path, worth: Map) -> list[Path]:
        if not len(path):
            return []
        run = np.diff(path.rows, prepend=path.rows[0])
        rise = np.diff(path.columns, prepend=path.columns[0])
        cost = self.skip_cost * np.maximum(run - 1, 0) + self.shift_cost * np.abs(rise - run)
        return [path[part] for part in best_runs(worth, cost, self.min_strength)]


def warp(gain: Map) -> tuple[Indices, Indices]:
    """Cells of the monotone path through `gain` with the largest sum; each frame is used once.

    >>> warp(np.array([[0, 3, 0], [2, 0, 0], [0, 0, 1]], dtype=np.float32))
    (array([0, 2]), array([1, 2]))
    """
    rows, width = gain.shape
    totals = np.zeros((rows + 1, width + 1), dtype=np.float32)
    best = np.empty(width, dtype=np.float32)
    # Rows come from iterators: at 300 frames, slicing them one by one takes as long as the sums.
    for before, above, of_row, here in zip(
        totals[:-1, :-1], totals[:-1, 1:], gain, totals[1:, 1:], strict=True
    ):
        np.add(before, of_row, out=best)
        np.maximum(best, above, out=best)
        np.maximum.accumulate(best, out=here)
    # Walk back: a cell lies on the path where its row raised the best sum of its column.
    cells = []
    row, column = rows, width
    at = totals.item
    while row > 0 and column > 0 and (total := at(row, column)) > 0:
        if total == at(row - 1, column):
            row -= 1
        elif total == at(row, column - 1):
            column -= 1
        else:
            cells.append((row - 1, column - 1))
            row -= 1
            column -= 1
    trace = np.array(cells[::-1], dtype=np.intp).reshape(-1, 2)
    return trace[:, 0], trace[:, 1]
