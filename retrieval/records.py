"""The records that stages hand each other: frozen, and validated at birth.

In: plain numbers and strings. Out: `Span`, `Segment`, `Fingerprint`, `Pair`.
Every stage of both packages uses them; none of them knows a database, a model or a file.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond every float
        return False


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Seconds `[start, end)` of one video.

    >>> Span(4.0, 6.5).seconds
    2.5
    """

    start: float
    end: float

    def __post_init__(self) -> None:
        if not (_is_finite(self.start) and _is_finite(self.end)):
            raise ValueError(f"span [{self.start}, {self.end}) is not finite")
        if self.start < 0:
            raise ValueError(f"span starts at {self.start}, before the video does")
        if self.end <= self.start:
            raise ValueError(f"span ends at {self.end} before it starts at {self.start}")

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def overlap(self, other: Span) -> float:
        """Seconds that both spans cover.

        >>> Span(0, 10).overlap(Span(8, 20))
        2
        """
        return max(0.0, min(self.end, other.end) - max(self.start, other.start))


@dataclass(frozen=True, slots=True)
class Segment:
    """One copied stretch: these seconds of the query are those seconds of the reference.

    `score` lies in [0, 1]. `speed` is how many seconds of the reference pass in one second of the
    query: 2.0 is a copy played twice as fast, 0.5 slow motion. A reversed copy keeps ascending
    spans on both sides and says so in `is_reversed`.
    """

    query: Span
    reference: Span
    score: float
    is_reversed: bool = False
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"segment score {self.score} is not within 0 and 1")
        if not (_is_finite(self.speed) and self.speed > 0):
            raise ValueError(f"segment speed {self.speed} is not a positive number")

    @property
    def box(self) -> tuple[float, float, float, float]:
        """`(q_start, r_start, q_end, r_end)`, the order of VCSL's files."""
        return (self.query.start, self.reference.start, self.query.end, self.reference.end)

    def as_dict(self) -> dict[str, Any]:
        """Flat and JSON-ready, with the column names of the SQL views."""
        return {
            "query_start": self.query.start,
            "query_end": self.query.end,
            "reference_start": self.reference.start,
            "reference_end": self.reference.end,
            "score": self.score,
            "is_reversed": self.is_reversed,
            "speed": self.speed,
        }


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What made a descriptor array. Arrays with different fingerprints never mix."""

    name: str
    weights: str
    dimension: int
    fps: float
    preprocessing: str

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("_", "").replace("-", "").isalnum():
            raise ValueError(f"fingerprint name {self.name!r} must be letters, digits, - or _")
        if self.dimension < 1:
            raise ValueError(f"fingerprint dimension {self.dimension} is not positive")
        if not (_is_finite(self.fps) and self.fps > 0):
            raise ValueError(f"fingerprint fps {self.fps} is not positive")

    @property
    def key(self) -> str:
        """Short and file-name safe: the name and twelve hex digits over every field."""
        facts = f"{self.name}|{self.weights}|{self.dimension}|{self.fps:g}|{self.preprocessing}"
        return f"{self.name}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate: a reference video worth comparing with a query, and why."""

    query_id: str
    reference_id: str
    rank: int
    score: float

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank {self.rank} is not positive; ranks count from 1")
