"""What an index of videos is, wherever its vectors live: in this process (`local`) or in Milvus.

In: pooled vectors of videos, and how far the log of changes is read. Out: `Hits` of a query.
The replica fills an index from the log, and candidates are proposed from its hits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.plugins import Array, Pooled


@dataclass(frozen=True)
class Hits:
    """Nearest vectors, a row a query vector: scores (q, k), video numbers and spans beside them.

    A video number counts into `videos`; -1 marks a place that nothing filled.
    """

    scores: NDArray[np.float32]
    numbers: NDArray[np.int64]
    spans: NDArray[np.float32]  # (q, k, 2)
    videos: list[str]


@dataclass(frozen=True)
class Position:
    """How far an index has read the log of changes."""

    seq: int = 0  # number of the last change that is in it
    stamp: str = ""  # when that change was written: tells this log from another
    unreadable: dict[str, str] = field(default_factory=dict)  # videos left out, and their files


class Index(Protocol):
    """Vectors of videos, searched by inner product, wherever they live.

    Adding a video twice, or removing one that is not there, is no error: after a crash the replica
    replays changes that may be in already.
    """

    key: str  # collection, descriptor and pooler of the vectors
    dimension: int
    is_shared: bool  # one for all processes, or a copy in each

    @property
    def position(self) -> Position: ...

    @property
    def vectors(self) -> int:
        """Living vectors."""

    def __len__(self) -> int:
        """Living videos."""

    def __contains__(self, video_id: str) -> bool: ...

    def add(self, video_id: str, pooled: Pooled) -> None:
        """Add a video, or put new vectors in the place of its old ones."""

    def remove(self, video_id: str) -> None: ...

    def commit(self, position: Position) -> None:
        """Every change up to there is in."""

    def search(self, vectors: Array, k: int, without: str | None = None) -> Hits:
        """The k nearest living vectors of each query vector, best first.

        `without` leaves one video out: a query that is itself a reference would fill every place.
        """

    def begin_anew(self) -> Index:
        """An empty index to be filled while this one is searched."""

    def serve(self) -> None:
        """Take the place of the index that this one was begun anew from, where that is shared."""

    def facts(self) -> dict[str, Any]:
        """What `vcl index info` shows beside its size."""
