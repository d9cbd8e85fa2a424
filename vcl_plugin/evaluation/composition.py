"""Made-up pairs of videos with the geometry of real copies.

In: rows of real labels (lengths and boxes) and a pool of sources. Out: `Composed` pairs, second by
second which view of which source they show, and the true boxes.
No pixel is touched here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from retrieval.describe.fitting.material import Split, split_of
from retrieval.errors import NotFound, Refused
from vcl_plugin.evaluation.edits import EDITS
from vcl_plugin.evaluation.sources import PHOTO_SECONDS, VIEWS_PER_SECOND, Source

Box = tuple[float, float, float, float]
NEGATIVES = ("unrelated", "cards", "black", "repeats", "takes", "neighbours")
MAX_SPEED = 3.0  # steeper labels are several cuts under one box, not one copy played fast
REVERSED_SHARE = 0.08
MIN_REVERSED_SECONDS = 6
MEAN_SHOT = 6  # seconds of a photograph
NEIGHBOUR_GAP = 2  # seconds at least between two stretches of one piece of footage


class View(NamedTuple):
    """One frame: a source, the way it is filmed, the half second, the edit on top."""

    source: str
    take: int
    half: int
    edit: str = "none"


@dataclass(frozen=True)
class Geometry:
    """Where the copies of one real pair lie."""

    query_frames: int
    reference_frames: int
    boxes: tuple[Box, ...]
    topic: str
    split: Split


@dataclass(frozen=True)
class Composed:
    """A pair ready to be rendered: one view a second on either side, and the truth."""

    query: list[View]
    reference: list[View]
    truth: tuple[Box, ...] = ()
    topic: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def read_geometry(path: Path, max_frames: int, min_frames: int = 8) -> list[Geometry]:
    """Usable rows of a label file: videos of a length we can fill, boxes that one copy can have.

    Rows of one event share a split; rows without an event are split one by one.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except OSError as reason:
        raise NotFound(f"{path} cannot be read ({reason})") from None
    found = []
    for row in rows:
        query, reference = int(row["query_frames"]), int(row["reference_frames"])
        if not (min_frames <= min(query, reference) and max(query, reference) <= max_frames):
            continue
        boxes = _usable_boxes(row["segments"], query, reference)
        if boxes:
            event = row.get("event")
            key = f"event:{event}" if event is not None else f"row:{json.dumps(row['segments'])}"
            topic = str(row.get("topic") or "")
            found.append(Geometry(query, reference, boxes, topic, split_of(key)))
    return found


def _usable_boxes(rows: Sequence[Sequence[float]], query: int, reference: int) -> tuple[Box, ...]:
    """Boxes of at least two seconds and at most `MAX_SPEED`; where two share query seconds, the
    longer stays, for a query second can show one frame only."""
    kept: list[Box] = []
    for row in sorted(rows, key=lambda each: each[0] - each[2]):
        q_start, r_start = max(int(row[0]), 0), max(int(row[1]), 0)
        q_end, r_end = min(int(row[2]), query), min(int(row[3]), reference)
        if q_end - q_start < 2 or r_end - r_start < 2:
            continue
        if not 1 / MAX_SPEED <= (r_end - r_start) / (q_end - q_start) <= MAX_SPEED:
            continue
        if all(q_end <= other[0] or other[2] <= q_start for other in kept):
            kept.append((q_start, r_start, q_end, r_end))
    return tuple(sorted(kept))


class Composer:
    """Composes pairs from the sources of one split; the same draws give the same pairs."""

    def __init__(self, sources: Sequence[Source], draw: np.random.Generator) -> None:
        self.draw = draw
        self.photos = [each for each in sources if each.kind == "photo"]
        self.videos = [each for each in sources if each.kind == "video"]
        self.cards = [each for each in sources if each.kind == "card"]
        self.black = [each for each in sources if each.kind == "black"]
        if len(self.photos) < 4:
            raise Refused(f"{len(self.photos)} photographs are too few to compose videos from")
        self.edits = [name for name in EDITS if name != "none"]

    def compose_copy(self, geometry: Geometry) -> Composed:
        """Two videos of different sources; then each box of the query shows the reference, under
        an edit of its own, at the speed of the box, sometimes backwards."""
        query_side, reference_side = self._two_sides(geometry)
        reference = self._fill(geometry.reference_frames, reference_side)
        query = self._fill(geometry.query_frames, query_side)
        if self.draw.random() < 0.3:
            self._share_cards(query, reference)
        seconds = query[::VIEWS_PER_SECOND]
        segments = []
        for box in geometry.boxes:
            edit = str(self.draw.choice(self.edits))
            is_long = box[2] - box[0] >= MIN_REVERSED_SECONDS
            is_reversed = is_long and self.draw.random() < REVERSED_SHARE
            self._paste(seconds, reference, box, edit, is_reversed)
            segments.append({"box": list(box), "edit": edit, "is_reversed": is_reversed})
        return Composed(
            query=seconds,
            reference=reference[::VIEWS_PER_SECOND],
            truth=geometry.boxes,
            topic=geometry.topic,
            facts={"kind": "copy", "segments": segments},
        )

    def compose_negative(self, geometry: Geometry, kind: str) -> Composed:
        """Two videos of that geometry's lengths that hold no copy, but may well look like it."""
        scenes = self._scenes_of(kind)
        if kind == "neighbours" and not scenes:
            kind = "unrelated"  # no footage here is long enough to be cut in two
        query_side, reference_side = self._two_sides(geometry, {each.group for each in scenes})
        query = self._fill(geometry.query_frames, query_side)
        reference = self._fill(geometry.reference_frames, reference_side)
        if kind == "cards":
            self._share_cards(query, reference)
        elif kind == "black":
            for timeline in (query, reference):
                for _ in range(3):
                    self._insert(timeline, self._clip(self.black[0], 3, 6))
        elif kind == "repeats":
            for timeline, side in ((query, query_side), (reference, reference_side)):
                again = self._clip(side[0], 3, 7)
                for _ in range(4):
                    self._insert(timeline, again)
        elif kind == "takes":
            self._film_twice(query, reference, scenes)
        elif kind == "neighbours":
            self._film_on(query, reference, scenes[0])
        source = {"source": scenes[0].group} if kind == "neighbours" else {}
        return Composed(
            query=query[::VIEWS_PER_SECOND],
            reference=reference[::VIEWS_PER_SECOND],
            facts={"kind": kind, **source},
        )

    def _scenes_of(self, kind: str) -> list[Source]:
        """What both videos of a negative are about; nothing else of it may appear in either."""
        if kind == "takes":
            return [self.photos[i] for i in self.draw.choice(len(self.photos), 4, replace=False)]
        long = [each for each in self.videos if each.seconds >= 20]
        if kind == "neighbours" and long:
            return [long[int(self.draw.integers(len(long)))]]
        return []

    def _two_sides(
        self, geometry: Geometry, without: Collection[str] = ()
    ) -> tuple[list[Source], list[Source]]:
        """Sources for the query and for the reference, no group on both sides; the longer video
        gets more of them."""
        groups: dict[str, list[Source]] = {}
        for source in [*self.photos, *self.videos]:
            if source.group not in without:
                groups.setdefault(source.group, []).append(source)
        names = list(groups)
        self.draw.shuffle(names)
        sides: tuple[list[Source], list[Source]] = ([], [])
        share = geometry.query_frames / (geometry.query_frames + geometry.reference_frames)
        for number, name in enumerate(names, start=1):
            side = sides[0] if len(sides[0]) < share * number else sides[1]
            side.append(groups[name][int(self.draw.integers(len(groups[name])))])
        return sides

    def _fill(self, frames: int, side: Sequence[Source]) -> list[View]:
        """A timeline of shots, two views a second; footage comes in longer shots than photographs,
        and more often than its number alone would have it."""
        needed = frames * VIEWS_PER_SECOND
        photos = [each for each in side if each.kind == "photo"]
        videos = [each for each in side if each.kind == "video"]
        timeline: list[View] = []
        while len(timeline) < needed:
            if not photos:
                raise Refused(
                    f"{len(side)} sources cannot fill {frames} seconds without repeating; lower "
                    f"--max-frames or add images"
                )
            left = (needed - len(timeline)) / VIEWS_PER_SECOND
            is_scarce = left > 0.9 * MEAN_SHOT * len(photos)
            if videos and self.draw.random() < 0.2:
                timeline += self._clip(videos.pop(), 6, 20)
            elif is_scarce:
                timeline += self._clip(photos.pop(), PHOTO_SECONDS, PHOTO_SECONDS)
            else:
                timeline += self._clip(photos.pop(), 3, 2 * MEAN_SHOT - 3)
        return timeline[:needed]

    def _clip(
        self, source: Source, shortest: int, longest: int, start: int | None = None
    ) -> list[View]:
        seconds = min(int(self.draw.integers(shortest, longest + 1)), source.seconds)
        if start is None:
            start = int(self.draw.integers(0, source.seconds - seconds + 1))
        first = start * VIEWS_PER_SECOND
        return [View(source.name, 0, first + i) for i in range(seconds * VIEWS_PER_SECOND)]

    def _insert(self, timeline: list[View], clip: Sequence[View]) -> None:
        """Overwrite a random stretch, starting on a whole second."""
        room = max(len(timeline) - len(clip), 0) // VIEWS_PER_SECOND
        first = int(self.draw.integers(0, room + 1)) * VIEWS_PER_SECOND
        part = clip[: len(timeline) - first]
        timeline[first : first + len(part)] = part

    def _share_cards(self, query: list[View], reference: list[View]) -> None:
        for _ in range(int(self.draw.integers(1, 4))):
            card = self.cards[int(self.draw.integers(len(self.cards)))]
            self._insert(query, self._clip(card, 2, 5))
            self._insert(reference, self._clip(card, 2, 5))

    def _film_twice(
        self, query: list[View], reference: list[View], scenes: Sequence[Source]
    ) -> None:
        """The same scenes in the same order on both sides, but never the same part of them."""
        for timeline, take in ((query, 1), (reference, 2)):
            shots = [self._clip(scene, 4, 8) for scene in scenes]
            strip = [view._replace(take=take) for shot in shots for view in shot]
            self._insert(timeline, strip)

    def _film_on(self, query: list[View], reference: list[View], source: Source) -> None:
        """Two stretches of one piece of footage, one on each side, that have no second in common:
        anywhere in it and in either order, or a few fixed cuts would stand for all footage."""
        longest = min((source.seconds - NEIGHBOUR_GAP) // 2, 25)
        length = int(self.draw.integers(min(8, longest), longest + 1))
        room = source.seconds - NEIGHBOUR_GAP - 2 * length
        apart = int(self.draw.integers(0, room + 1))
        start = int(self.draw.integers(0, room - apart + 1))
        starts = [start, start + length + NEIGHBOUR_GAP + apart]
        self.draw.shuffle(starts)
        for timeline, first in zip((query, reference), starts, strict=True):
            self._insert(timeline, self._clip(source, length, length, first))

    def _paste(
        self, seconds: list[View], reference: Sequence[View], box: Box, edit: str, is_reversed: bool
    ) -> None:
        q_start, r_start, q_end, r_end = (int(each) for each in box)
        speed = (r_end - r_start) / (q_end - q_start)
        first, last = r_start * VIEWS_PER_SECOND, r_end * VIEWS_PER_SECOND - 1
        # Nobody starts a copy on the second at which we sample: half of them lie in between.
        phase = int(self.draw.integers(0, VIEWS_PER_SECOND))
        for second in range(q_start, q_end):
            moved = int((second - q_start) * speed * VIEWS_PER_SECOND) + phase
            place = last - moved if is_reversed else first + moved
            view = reference[min(max(place, first), last)]
            seconds[second] = view._replace(edit=edit)
