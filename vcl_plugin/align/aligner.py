"""What the classic methods share: a map goes in, a method finds paths, segments come out.

In: two descriptor arrays, or their cosine map. Out: `Segment`s of both directions, none repeated.
The methods beside this file each say how paths are found; `retrieval.plugins` loads them by name.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from retrieval.arrays import as_descriptors, unit
from retrieval.plugins import Array
from retrieval.records import Segment
from vcl_plugin.align.matches import Map, Matches, find_matches
from vcl_plugin.align.paths import (
    Path,
    background,
    centre_map,
    cut_path,
    estimate_speed,
    make_segment,
    measure_change,
    straighten_path,
    trim_path,
)
from vcl_plugin.localize.boxes import box_areas, intersection_matrix


@dataclass(frozen=True)
class Aligner(ABC):
    """A localizer that works on the cosine map. A method adds `find_paths` and its parameters.

    Frames that are a little like everything are brought down first, by the share `centring`.
    Frames match when they are more alike than a floor, which lies `deviations` above the map's own
    background, but between `min_similarity` and `sure_similarity`. A segment needs `min_length`
    matched frames and a strength (similarity above the floor, summed) of `min_strength`. It may
    pause for `max_gap` seconds, loses its ends where they are weak beside the rest (`trimming`),
    and is cut in two where it leaves its line by more than `max_shift` seconds. A copy must move:
    it needs a change (see `measure_change`) of `min_change`, of which each second gives it
    `still_credit`, so that a still counts when it stands long enough.
    """

    name: ClassVar[str]
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "min_change": (0.2, 0.35, 0.5, 0.75),
        "max_gap": (4, 6, 10),
        "trimming": (0.0, 0.4, 0.6),
        "deviations": (2.5, 3.0, 3.5, 4.0),
        "centring": (0.0, 0.5, 1.0),
        "min_similarity": (0.2, 0.3, 0.4, 0.5),
        "min_length": (3, 4, 6),
        "min_strength": (0.4, 0.8, 1.6),
    }
    revision: ClassVar[int] = 3  # raised when the same parameters begin to give other segments

    centring: float = 0.5
    min_similarity: float = 0.3
    sure_similarity: float = 0.7
    deviations: float = 3.0
    trimming: float = 0.4
    min_length: int = 4
    min_strength: float = 0.8
    max_gap: int = 6
    max_shift: float = 3.0
    max_speed: float = 2.5
    max_overlap: float = 0.3
    min_change: float = 0.35
    still_credit: float = 0.02
    # A still shot matches in both directions; only a clearly stronger path backwards is a reversal.
    reversed_margin: float = 1.25

    @property
    def fingerprint(self) -> str:
        facts = json.dumps({"revision": self.revision, **asdict(self)}, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    @abstractmethod
    def find_paths(self, matches: Matches) -> list[Path]:
        """Paths that run forward through the matches; stray matches were dropped before."""

    def localize(self, query: Array, reference: Array) -> list[Segment]:
        return self.localize_many(query, [reference])[0]

    def localize_many(self, query: Array, references: Sequence[Array]) -> list[list[Segment]]:
        rows = unit(as_descriptors(query, "query"))
        return [
            self.localize_map(rows @ unit(as_descriptors(each, f"reference {number}")).T)
            for number, each in enumerate(references)
        ]

    def localize_map(self, similarity: Map) -> list[Segment]:
        """Segments of both directions, strongest first; the map is never changed."""
        similarity = centre_map(similarity, self.centring)
        floor = self.floor(similarity)
        matches = find_matches(similarity, floor)
        width = similarity.shape[1]
        forward = self._find_pieces(matches.supported())
        backward = self._find_pieces(matches.mirrored().supported())
        pieces = [
            part
            for piece in [*forward, *(each.mirrored(width) for each in backward)]
            for part in trim_path(piece, similarity, floor, self.trimming)
            if len(part) >= self.min_length
        ]
        chosen = self._choose(pieces, similarity, floor)
        straight = [straighten_path(path, similarity) for path in chosen]
        return [make_segment(path, similarity, floor) for path in straight]

    def _find_pieces(self, matches: Matches) -> list[Path]:
        if len(matches) < self.min_length:
            return []
        return [
            piece
            for path in self.find_paths(matches)
            if len(path) >= self.min_length
            for piece in cut_path(path, self.max_gap, self.max_shift, self.min_length)
            if len(piece) >= self.min_length
        ]

    def floor(self, similarity: Map) -> float:
        """The similarity above which two frames of these videos count as the same."""
        middle, spread = background(similarity)
        level = middle + self.deviations * spread
        return float(np.clip(level, self.min_similarity, self.sure_similarity))

    def _choose(self, pieces: list[Path], similarity: Map, floor: float) -> list[Path]:
        """Long, strong and plausibly fast pieces; of two over the same seconds, the stronger."""
        rated = []
        for piece in pieces:
            strength = float((similarity[piece.rows, piece.columns] - floor).sum())
            change = measure_change(piece, similarity, floor)
            if not piece.is_reversed:  # a still stands in time, but it runs in no direction
                change += self.still_credit * (piece.box[2] - piece.box[0])
            if (
                strength >= self.min_strength
                and change >= self.min_change
                and piece.seconds >= self.min_length
                and self._is_speed(piece.slope)
                and self._is_speed(estimate_speed(piece))
            ):
                margin = 1.0 if piece.is_reversed else self.reversed_margin
                rated.append((strength * margin, piece))
        rated.sort(key=lambda each: -each[0])
        kept: list[Path] = []
        for _, piece in rated:
            if not kept or self._is_apart(piece, kept):
                kept.append(piece)
        return kept

    def _is_speed(self, speed: float) -> bool:
        return 1 / self.max_speed <= speed <= self.max_speed

    def _is_apart(self, piece: Path, kept: list[Path]) -> bool:
        boxes = [other.box for other in kept]
        common = intersection_matrix([piece.box], boxes)[0]
        smaller = np.minimum(box_areas([piece.box]), box_areas(boxes))
        return bool((common <= self.max_overlap * smaller).all())
