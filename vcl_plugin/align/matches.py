"""Matches: the cells of a similarity map in which two frames are alike enough to be the same.

In: a map and a floor. Out: `Matches`, thinned out to those that can be part of a copy.
Every method works on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Map = NDArray[np.float32]
Indices = NDArray[np.intp]
# Steps (query seconds, reference seconds) from one match of a copy to another near it.
COMPANIONS = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1), (2, 3), (3, 2), (3, 3))
REACH = 3
TIE = 0.03  # similarities closer than this are a tie
MOST_IN_A_ROW = 64  # of a still against a still everything matches, and nothing is learnt from it


@dataclass(frozen=True, eq=False)
class Matches:
    """Query frame `rows[i]` may show reference frame `columns[i]`; `worth[i]` is how far their
    similarity lies above the floor. Rows ascend."""

    rows: Indices
    columns: Indices
    worth: Map
    shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.rows)

    def mirrored(self) -> Matches:
        """The matches of the map read from its last column to its first."""
        return Matches(self.rows, self.shape[1] - 1 - self.columns, self.worth, self.shape)

    def take(self, chosen: NDArray[np.bool_] | Indices) -> Matches:
        return Matches(self.rows[chosen], self.columns[chosen], self.worth[chosen], self.shape)

    def supported(self) -> Matches:
        """Those with a companion a few seconds before or after, forward in both videos.

        A copy shows on many frames in a row; a stray match stands alone, and so does every match
        of a copy that runs the other way.
        """
        padded = np.zeros((self.shape[0] + 2 * REACH, self.shape[1] + 2 * REACH), dtype=bool)
        rows, columns = self.rows + REACH, self.columns + REACH
        padded[rows, columns] = True
        is_supported = np.zeros(len(self), dtype=bool)
        for run, rise in COMPANIONS:
            is_supported |= padded[rows + run, columns + rise]
            is_supported |= padded[rows - run, columns - rise]
        return self.take(is_supported)

    def best(self, count: int) -> Matches:
        """At most `count` matches a row, the worthiest.

        Near ties go to the diagonal that holds most altogether: the frames of a still are all
        alike, and rows that choose by chance among them make no path.
        """
        if len(self) == 0 or self.row_places().max() < count:
            return self
        offsets = self.columns - self.rows + self.shape[0]
        votes = np.bincount(offsets, self.worth)
        favour = TIE * (votes / max(votes.max(), 1e-9))[offsets]
        order = np.lexsort((-(self.worth + favour), self.rows))
        return self.take(np.sort(order[self.row_places() < count]))

    def row_places(self) -> Indices:
        """For each match how many of its row stand before it."""
        firsts = np.searchsorted(self.rows, self.rows)
        return np.arange(len(self)) - firsts

    def as_map(self, fill: float) -> Map:
        """The worth of every cell, `fill` where nothing matches."""
        cells = np.full(self.shape, fill, dtype=np.float32)
        cells[self.rows, self.columns] = self.worth
        return cells


def find_matches(similarity: Map, floor: float) -> Matches:
    """Every cell above the floor; of rows that match nearly everywhere, the best."""
    rows, width = similarity.shape
    places = np.flatnonzero(similarity > floor)
    if len(places) > MOST_IN_A_ROW * rows and width > MOST_IN_A_ROW:
        columns = np.argpartition(similarity, width - MOST_IN_A_ROW, axis=1)
        columns = np.sort(columns[:, width - MOST_IN_A_ROW :], axis=1)
        places = (columns + width * np.arange(rows)[:, None]).ravel()
        places = places[similarity.ravel()[places] > floor]
    found_rows, found_columns = np.divmod(places, width)
    worth = similarity[found_rows, found_columns] - np.float32(floor)
    return Matches(found_rows, found_columns, worth, (rows, width))
