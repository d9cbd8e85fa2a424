"""A second, closer look: the same network on tiles of a pair, for copies too short for the first.

In: a localizer and two descriptor arrays. Out: a `Look`: segments of the whole pair and of tiles.
A detector sees a pair of any length as one picture of 224 pixels. If that shows 300 seconds, a copy
of five is a smudge; in a tile of 96 seconds it is a line. Of validation copies of 6 to 10 seconds
66 % were missed without tiles, 14 % with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from retrieval.plugins import Array, Localizer
from retrieval.records import Segment, Span
from vcl_plugin.localize.boxes import tile_starts


class Look(NamedTuple):
    """What one look at two videos shows: segments, and a logit that there is any copy at all."""

    segments: list[Segment]
    logit: float


@runtime_checkable
class Looking(Localizer, Protocol):
    """A localizer that also judges the pair as a whole. Its arrays are already checked."""

    def look(self, query: Array, reference: Array) -> Look: ...


@dataclass(frozen=True)
class Zoom:
    """Tiles of `seconds`, neighbours sharing `overlap`.

    A pair is not cut if both videos are shorter than `factor` tiles, nor if it would be more than
    `max_tiles`: two films of two hours would be 13 000.
    """

    seconds: int = 96
    overlap: int = 32
    factor: float = 1.3
    max_tiles: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.seconds:
            raise ValueError(f"overlap {self.overlap} must be at least 0 and below {self.seconds}")


def look_closer(localizer: Localizer, query: Array, reference: Array, zoom: Zoom | None) -> Look:
    """What the localizer finds in the whole pair and in every tile of it, in the pair's time.

    The logit is that of the whole pair.
    """
    looks = [
        (low, start, look_at(localizer, part, tile))
        for low, start, part, tile in cut_pair(query, reference, zoom)
    ]
    segments = [
        shift_segment(each, low, start) for low, start, look in looks for each in look.segments
    ]
    return Look(segments, looks[0][2].logit)


def look_at(localizer: Localizer, query: Array, reference: Array) -> Look:
    """One look; of a localizer that says nothing of the pair as a whole the logit is 0."""
    if isinstance(localizer, Looking):
        return localizer.look(query, reference)
    return Look(localizer.localize(query, reference), 0.0)


def cut_pair(
    query: Array, reference: Array, zoom: Zoom | None
) -> Iterator[tuple[int, int, Array, Array]]:
    """The whole pair, then every query tile with every reference tile; each after its starts."""
    yield 0, 0, query, reference
    if zoom is None or max(len(query), len(reference)) <= zoom.factor * zoom.seconds:
        return
    lows = tile_starts(len(query), zoom.seconds, zoom.overlap)
    starts = tile_starts(len(reference), zoom.seconds, zoom.overlap)
    if len(lows) * len(starts) > zoom.max_tiles:
        return
    for low in lows:
        for start in starts:
            part, tile = query[low : low + zoom.seconds], reference[start : start + zoom.seconds]
            yield low, start, part, tile


def shift_segment(segment: Segment, query: float, reference: float) -> Segment:
    """The segment, moved by so many seconds of the query and of the reference."""
    return replace(
        segment,
        query=Span(segment.query.start + query, segment.query.end + query),
        reference=Span(segment.reference.start + reference, segment.reference.end + reference),
    )


def join_pieces(
    segments: Sequence[Segment], max_gap: float = 4.0, tolerance: float = 2.0
) -> list[Segment]:
    """Segments that continue each other along one line become one; the others stay as they are.

    Tiles cut a copy into pieces, and each piece gets ends of its own. Pieces of one copy are known
    by lying on one line, and by overlapping or nearly touching. The best score is kept.
    """
    pieces = sorted(segments, key=lambda each: each.query.start)
    joined = True
    while joined:
        joined = False
        for i in range(len(pieces)):
            for k in range(i + 1, len(pieces)):
                if _continue(pieces[i], pieces[k], max_gap, tolerance):
                    pieces[i] = _union(pieces[i], pieces.pop(k))
                    joined = True
                    break
            if joined:
                break
    return pieces


def _continue(one: Segment, other: Segment, max_gap: float, tolerance: float) -> bool:
    if one.is_reversed != other.is_reversed:
        return False
    for a, b in ((one.query, other.query), (one.reference, other.reference)):
        if max(a.start, b.start) - min(a.end, b.end) > max_gap:
            return False
    longer, shorter = sorted((one, other), key=lambda each: -each.query.seconds)
    room = tolerance + 0.05 * shorter.query.seconds
    ends = np.array([shorter.query.start, shorter.query.end])
    miss = np.abs(longer.line.reference_at(ends) - shorter.line.reference_at(ends))
    return bool((miss <= room * max(1.0, longer.speed)).all())


def _union(one: Segment, other: Segment) -> Segment:
    spans = [
        Span(min(a.start, b.start), max(a.end, b.end))
        for a, b in ((one.query, other.query), (one.reference, other.reference))
    ]
    return replace(
        one,
        query=spans[0],
        reference=spans[1],
        score=max(one.score, other.score),
        speed=spans[1].seconds / spans[0].seconds,
    )
