"""Two videos compared frame by frame: the maps in which a copy draws a line.

In: two descriptor arrays, and segments found between them.
Out: `Maps` of the whole pair, or of the surroundings of each segment where the pair is very long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import cosine_map
from retrieval.plugins import Array
from retrieval.records import Segment
from vcl_plugin.localize.changes import changes_of
from vcl_plugin.localize.zoom import shift_segment

Map = NDArray[np.float32]
# Beyond this many cells of a map (64 MB) each segment is judged in its surroundings alone.
MAX_CELLS, SURROUNDINGS = 16_000_000, 300


class Maps(NamedTuple):
    """Query frames (rows) against reference frames (columns), compared in two ways.

    `similarity` compares the frames themselves, `changes` what each of them adds to the scene
    around it: in front of a fixed camera all frames look alike, and only changes tell one second
    from another. The map of changes fits copies at normal speed; for any other speed `changes`
    computes them anew, from the two arrays.
    """

    similarity: Map
    changes: Map  # negative values are set to 0
    query: Array  # frames
    reference_changes: Array


class Surroundings(NamedTuple):
    """Maps of a part of a pair, and the segments in it, in the part's own time."""

    maps: Maps
    segments: list[Segment]
    query_start: int  # where the part starts
    reference_start: int


def map_pair(query: Array, reference: Array) -> Maps:
    one, other = changes_of(query), changes_of(reference)
    return Maps(cosine_map(query, reference), (one @ other.T).clip(0), query, other)


def map_surroundings(
    query: Array, reference: Array, segments: Sequence[Segment]
) -> Iterator[Surroundings]:
    """The whole pair with all segments, or one part a segment where its map would be too large."""
    if not segments:
        return
    if len(query) * len(reference) <= MAX_CELLS:
        yield Surroundings(map_pair(query, reference), list(segments), 0, 0)
        return
    for each in segments:
        low, start = (
            max(0, int(side.start) - SURROUNDINGS) for side in (each.query, each.reference)
        )
        high, end = (int(side.end) + SURROUNDINGS for side in (each.query, each.reference))
        maps = map_pair(query[low:high], reference[start:end])
        yield Surroundings(maps, [shift_segment(each, -low, -start)], low, start)
