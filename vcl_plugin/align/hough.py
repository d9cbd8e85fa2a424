"""Temporal Hough voting: matches vote for the line (speed and offset) on which they lie.

In: a similarity map. Out: `Path`s, one per stretch of a line with enough votes.
Loaded by the name "hv" (Douze et al., "An image-based approach to video copy detection with
spatio-temporal post-filtering", IEEE Transactions on Multimedia 2010).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vcl_plugin.align.aligner import Aligner
from vcl_plugin.align.matches import Map, Matches
from vcl_plugin.align.paths import Path, best_runs

# Neighbouring speeds drift apart by a second in four to ten: inside `tolerance` for short copies,
# and long ones are followed by the matches themselves.
SPEEDS = np.array([1.0, 0.5, 0.571, 0.667, 0.8, 0.9, 1.111, 1.25, 1.5, 1.75, 2.0])


@dataclass(frozen=True)
class HoughVoting(Aligner):
    """Each query frame's `top_k` matches vote; the lines with most votes are read one after
    another, each taking its matches (`tolerance` seconds about it) away from the next.
    """

    name: ClassVar[str] = "hv"

    top_k: int = 5
    tolerance: float = 1.5
    max_lines: int = 30
    skip_cost: float = 0.05

    def find_paths(self, matches: Matches) -> list[Path]:
        best = matches.best(self.top_k)
        rows, columns, worth = best.rows, best.columns, best.worth
        offsets = columns - SPEEDS[:, None] * rows  # (speeds, matches)
        paths = []
        left = np.ones(len(rows), dtype=bool)
        for _ in range(self.max_lines):
            speed, offset, votes = self._best_line(offsets[:, left], worth[left])
            if votes < self.min_strength:
                break
            on_line = left & (np.abs(offsets[speed] - offset) <= self.tolerance)
            members = np.flatnonzero(on_line)
            members = members[_best_of_each(rows[members], worth[members])]
            skipped = np.diff(rows[members], prepend=rows[members][0] - 1) - 1
            cost = self.skip_cost * skipped
            for part in best_runs(worth[members], cost, self.min_strength):
                paths.append(Path(rows[members[part]], columns[members[part]]))
            left &= ~on_line
        return paths

    def _best_line(self, offsets: NDArray[np.float64], worth: Map) -> tuple[int, float, float]:
        """`(speed, offset, votes)` of the line with most votes; the first speed wins a tie."""
        if offsets.size == 0:
            return 0, 0.0, 0.0
        bins = np.round(offsets).astype(np.intp)
        lowest = bins.min()
        bins -= lowest
        width = int(bins.max()) + 1
        bins += width * np.arange(len(SPEEDS))[:, None]
        weights = np.broadcast_to(worth, bins.shape)
        votes = np.bincount(bins.ravel(), weights.ravel(), minlength=width * len(SPEEDS))
        votes = votes.reshape(len(SPEEDS), width)
        near = votes.copy()  # a copy between two whole seconds votes for both
        near[:, 1:] += votes[:, :-1]
        near[:, :-1] += votes[:, 1:]
        speed, place = np.unravel_index(int(near.argmax()), near.shape)
        return int(speed), float(place + lowest), float(near[speed, place])


def _best_of_each(rows: NDArray[np.intp], worth: Map) -> NDArray[np.intp]:
    """Indices of the most worthy match of every row, rows ascending."""
    order = np.lexsort((-worth, rows))
    return order[np.unique(rows[order], return_index=True)[1]]
