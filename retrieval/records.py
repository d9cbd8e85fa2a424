"""The records that stages hand each other: frozen, and validated at birth.

In: plain numbers and strings. Out: `Span`, `Line`, `Segment`, `Fingerprint`, `Candidate`;
`Video`, `Upload`, `Search` and `Pair` as the work room reads them, with their statuses.
Every stage of both packages uses them; none of them knows a database, a model or a file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Seconds = TypeVar("Seconds", float, NDArray[Any])


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
class Line:
    """Which reference second each query second shows, and the other way round.

    Query second `query_start` shows reference second `reference_start`, `query_end` shows
    `reference_end`; a reversed copy's line falls, so its `reference_end` is the smaller one.
    Seconds outside are answered as if the copy went on. Numbers and numpy arrays are both fine.

    >>> Line(10, 40, 20, 60).reference_at(15), Line(10, 60, 20, 40).reference_at(12)
    (50.0, 56.0)
    >>> Line(10, 60, 20, 40).query_at(56)
    12.0
    """

    query_start: float
    reference_start: float
    query_end: float
    reference_end: float

    def __post_init__(self) -> None:
        ends = (self.query_start, self.reference_start, self.query_end, self.reference_end)
        if not all(_is_finite(each) for each in ends):
            raise ValueError(f"line {ends} is not finite")
        if self.query_end <= self.query_start:
            raise ValueError(f"line ends at query second {self.query_end}, not after its start")
        if self.reference_end == self.reference_start:
            raise ValueError(f"line stays at reference second {self.reference_start}")

    @property
    def is_reversed(self) -> bool:
        return self.reference_end < self.reference_start

    @property
    def slope(self) -> float:
        """Reference seconds that pass in one query second; negative in a reversed copy."""
        return (self.reference_end - self.reference_start) / (self.query_end - self.query_start)

    @property
    def speed(self) -> float:
        """The slope without its direction."""
        return abs(self.slope)

    @property
    def pace(self) -> float:
        """Query seconds that pass in one reference second, without direction."""
        return abs(
            (self.query_end - self.query_start) / (self.reference_end - self.reference_start)
        )

    def reference_at(self, query_seconds: Seconds) -> Seconds:
        return self.reference_start + self.slope * (query_seconds - self.query_start)

    def query_at(self, reference_seconds: Seconds) -> Seconds:
        if self.is_reversed:
            return self.query_end - self.pace * (reference_seconds - self.reference_end)
        return self.query_start + self.pace * (reference_seconds - self.reference_start)


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

    @property
    def line(self) -> Line:
        """The straight line that the copy draws through its box."""
        first, last = self.reference.start, self.reference.end
        if self.is_reversed:
            first, last = last, first
        return Line(self.query.start, first, self.query.end, last)

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

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Segment:
        """The segment of a row with the columns of `as_dict`; other columns are left alone."""
        return cls(
            Span(row["query_start"], row["query_end"]),
            Span(row["reference_start"], row["reference_end"]),
            row["score"],
            row["is_reversed"],
            row["speed"],
        )


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
class Candidate:
    """A reference video worth comparing with a query, and why."""

    query_id: str
    reference_id: str
    rank: int
    score: float

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank {self.rank} is not positive; ranks count from 1")


class VideoStatus(StrEnum):
    """How far a video is; the words stand in `videos.status`."""

    WAITING = "waiting"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in (VideoStatus.READY, VideoStatus.FAILED)


class SearchStatus(StrEnum):
    """How far a search is; the words stand in `searches.status`."""

    WAITING = "waiting"
    RUNNING = "running"  # being planned
    LOCALIZING = "localizing"  # its pairs are being compared
    DONE = "done"
    INCOMPLETE = "incomplete"  # at its end, and something could not be compared
    FAILED = "failed"
    CANCELLED = "cancelled"  # somebody ended it; what was found before stays

    @property
    def is_final(self) -> bool:
        return self not in (SearchStatus.WAITING, SearchStatus.RUNNING, SearchStatus.LOCALIZING)


class PairStatus(StrEnum):
    """How far a pair is; the words stand in `pairs.status`."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    QUARANTINED = "quarantined"
    CANCELLED = "cancelled"  # every search that waited for it was; a new one opens it again

    @property
    def is_open(self) -> bool:
        return self in (PairStatus.WAITING, PairStatus.RUNNING)


@dataclass(frozen=True, slots=True)
class Video:
    """A video as the catalogue knows it. A failed one has a `reason` and a `message`."""

    id: str
    content_hash: str | None  # None: registered by another engine, by its own id
    path: str | None
    title: str
    duration: float | None
    is_reference: bool
    status: VideoStatus
    reason: str | None
    message: str | None
    attempts: int
    leased_by: str | None
    lease_until: datetime | None
    sent_at: datetime | None
    created_at: datetime

    def as_dict(self) -> dict[str, Any]:
        """Flat, with the names of the table's columns, as `--json` prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Upload:
    """An event: somebody put a content somewhere. Whatever nobody said is None."""

    uploader: str | None = None  # in the words of whoever tells of it; allow-lists name it
    external_id: str | None = None  # the platform's own
    url: str | None = None
    uploaded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """A search and how many of its pairs are left. A failed one has a `reason` and a `message`."""

    search_id: str
    query_id: str
    query: str  # the title of the query
    status: SearchStatus
    reason: str | None
    message: str | None
    pairs_total: int
    pairs_left: int
    pairs_quarantined: int
    seconds: float | None  # from the asking to the end
    asked_by: str | None  # the key that asked over HTTP
    created_at: datetime
    finished_at: datetime | None

    def as_dict(self) -> dict[str, Any]:
        """Flat and JSON-ready, as `--json` prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and a reference that one method compares, and how far that is."""

    id: int
    query_id: str
    reference_id: str
    model: str  # fingerprint of the localizer
    fingerprint: str  # of the descriptors it compares
    status: PairStatus
    reason: str | None
    message: str | None
    attempts: int
