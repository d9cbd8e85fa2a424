"""Views: parts or other aspects of a video's frames that are described for themselves.

In: for each run of frames, its numbers and the descriptors of one view of them. Out: `Views`.
`tracker` and `scenes` make them, the store keeps them, `pairing` and `pooling` use them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

MAX_VIEWS = 5  # of one frame: three parts, its mirror image, its middle


class ViewKind(IntEnum):
    """What a view shows of its frame."""

    PART = 0  # a film shown small, or half a screen
    MIRRORED = 1  # the whole frame, left and right exchanged
    MIDDLE = 2  # the frame without its margins


@dataclass(frozen=True, eq=False)
class Views:
    """A table with one row for each view.

    A run is one view over successive frames; its rows lie together, in time order. Each kind
    numbers its runs from 0.
    """

    vectors: NDArray[np.float32]  # (rows, d)
    frames: NDArray[np.int32]  # (rows,): the frame that each row is a view of
    kinds: NDArray[np.uint8]  # (rows,): a `ViewKind`
    runs: NDArray[np.int32]  # (rows,)

    def __post_init__(self) -> None:
        lengths = [len(each) for each in (self.vectors, self.frames, self.kinds, self.runs)]
        if len(set(lengths)) > 1:
            raise ValueError(
                "views have {} vectors, {} frames, {} kinds and {} runs; give one of each a row"
                "".format(*lengths)
            )

    def __len__(self) -> int:
        return len(self.vectors)

    def runs_of(self, kind: ViewKind) -> list[Views]:
        """Each run of that kind by itself, in the order of the table."""
        is_new = (np.diff(self.kinds) != 0) | (np.diff(self.runs) != 0)
        bounds = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(self)]
        return [
            Views(self.vectors[rows], self.frames[rows], self.kinds[rows], self.runs[rows])
            for rows in itertools.starmap(slice, itertools.pairwise(bounds))
            if (self.kinds[rows] == kind).any()
        ]


NO_VIEWS = Views(
    np.zeros((0, 256), np.float32),
    np.zeros(0, np.int32),
    np.zeros(0, np.uint8),
    np.zeros(0, np.int32),
)


def number_runs(kind: ViewKind, runs: Iterable[tuple[Sequence[int], NDArray[np.float32]]]) -> Views:
    """The table of runs of one kind, each given as its frames and their vectors."""
    return join_views(
        Views(
            vectors,
            np.asarray(frames, np.int32),
            np.full(len(frames), kind, np.uint8),
            np.full(len(frames), number, np.int32),
        )
        for number, (frames, vectors) in enumerate(runs)
    )


def join_views(tables: Iterable[Views]) -> Views:
    """One table after the other."""
    filled = [each for each in tables if len(each)]
    if len(filled) < 2:
        return filled[0] if filled else NO_VIEWS
    return Views(
        np.concatenate([each.vectors for each in filled]),
        np.concatenate([each.frames for each in filled]),
        np.concatenate([each.kinds for each in filled]),
        np.concatenate([each.runs for each in filled]),
    )
