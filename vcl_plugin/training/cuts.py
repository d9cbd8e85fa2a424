"""Cuts: made-up pairs of videos, put together from footage with the geometry of real copies.

In: `Footage` and rows of real labels. Out: `CutPair`s, number i the same for one seed.
A copy runs at any speed from a fifth to five times, or is cut up, or runs backwards. Around it is
what makes a search hard: other moments of the same camera, cards that many videos show, films that
hardly move, and videos in which everything has one style.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import unit
from retrieval.describe.fitting.material import Split, split_of
from retrieval.errors import NotFound
from retrieval.plugins import Array
from vcl_plugin.training.footage import Footage

Seconds = NDArray[np.floating[Any]]
IntBox = tuple[int, int, int, int]
SPEEDS = (0.18, 5.5)
SHORTEST = 2  # seconds of a copy, on both sides
LOOKALIKES = 14  # films most like one another that a pair may be cut from


@dataclass(frozen=True)
class Layout:
    """Where the copies of one real pair lie."""

    query: int
    reference: int
    boxes: tuple[IntBox, ...]


@dataclass(frozen=True, eq=False)
class Copy:
    """Query seconds `[box[0], box[2])`, and the reference second that each of them shows."""

    box: IntBox
    shown: Seconds


@dataclass(frozen=True, eq=False)
class CutPair:
    query: Array
    reference: Array
    copies: tuple[Copy, ...]
    known: Array  # the reference as it was described, without what was added to it


@dataclass(frozen=True, eq=False)
class Shot:
    """Seconds `[start, end)` of a video show footage from second `first` on. `stillness` moves its
    frames towards their mean: 0 leaves them, 1 would be a still. A camera glides over a photograph
    at any pace."""

    start: float
    end: float
    footage: Footage
    first: float
    stillness: float = 0.0
    pace: float = 1.0  # seconds of footage a second


def read_layouts(paths: Sequence[Path], split: Split, longest: int = 600) -> list[Layout]:
    """Rows of label files whose videos are at most `longest` seconds long."""
    layouts = []
    for path in paths:
        for row in json.loads(path.read_text(encoding="utf-8")):
            query, reference = int(row["query_frames"]), int(row["reference_frames"])
            event = row.get("event")
            key = f"row:{json.dumps(row['segments'])}" if event is None else f"event:{event}"
            is_usable = min(query, reference) >= 8 and max(query, reference) <= longest
            if is_usable and split_of(key) == split:
                layout = _fit(Layout(query, reference, tuple(map(tuple, row["segments"]))))
                if layout.boxes:
                    layouts.append(layout)
    if not layouts:
        raise NotFound(f"no row of {[str(each) for each in paths]} is of the split {split}")
    return layouts


def _fit(layout: Layout, scale: float = 1.0) -> Layout:
    """The layout at another scale; boxes inside both videos, none over the same query seconds."""
    query, reference = (max(8, int(side * scale)) for side in (layout.query, layout.reference))
    boxes: list[IntBox] = []
    for box in layout.boxes:
        q_start, r_start, q_end, r_end = (int(side * scale) for side in box)
        q_end, r_end = min(q_end, query), min(r_end, reference)
        run, rise = q_end - q_start, r_end - r_start
        if min(run, rise) < SHORTEST or not SPEEDS[0] <= rise / run <= SPEEDS[1]:
            continue
        if all(q_end <= other[0] or other[2] <= q_start for other in boxes):
            boxes.append((q_start, r_start, q_end, r_end))
    return Layout(query, reference, tuple(boxes))


class Cutter:
    """Cuts pairs from footage."""

    def __init__(self, footage: Sequence[Footage], layouts: Sequence[Layout], seed: int) -> None:
        self.footage, self.layouts, self.seed = footage, layouts, seed
        self.films = [each for each in footage if each.is_film]
        self.photos = [each for each in footage if not each.is_film]
        self.versions = min(each.versions for each in footage)
        chances = np.sqrt([each.seconds for each in self.films])
        self.chances = chances / chances.sum()
        means = unit(np.stack([each.means[0, 0] for each in self.films]))
        self.likeness = means @ means.T

    def cut(self, number: int) -> CutPair:
        return _Cut(self, np.random.default_rng([self.seed, number])).make()


class _Cut:
    """The making of one pair."""

    def __init__(self, cutter: Cutter, rng: np.random.Generator) -> None:
        self.cutter, self.rng = cutter, rng

    def make(self) -> CutPair:
        rng = self.rng
        # 1. Where the copies lie, if there are any.
        layout = self._vary(self.cutter.layouts[int(rng.integers(len(self.cutter.layouts)))])
        boxes = layout.boxes if rng.random() < 0.7 else ()
        # 2. Two videos that have no footage in common, but maybe a camera.
        mine, theirs = self._split_footage()
        reference = self._timeline(layout.reference, *mine)
        query = self._timeline(layout.query, *theirs)
        if rng.random() < (0.25 if boxes else 0.45):
            self._add_neighbours(query, reference, layout)
        known = render(reference, np.arange(layout.reference) + 0.5, 0)
        version = int(rng.integers(self.cutter.versions)) if rng.random() < 0.5 else 0
        asked = render(query, np.arange(layout.query) + 0.5, version)
        # 3. The copies, then cards that both videos show.
        copies = tuple(self._paste(asked, reference, box) for box in boxes)
        if rng.random() < (0.3 if boxes else 0.4):
            self._share_cards(asked, known, boxes)
        # 4. Rougher descriptors, and videos of one style.
        plain = unit(known)
        asked, known = self._blur(unit(asked), 0.1), self._blur(unit(known), 0.06)
        if rng.random() < 0.35:
            style = self._draw_row() if rng.random() < 0.6 else self._draw_direction()
            amount = rng.uniform(0.1, 1.6)
            asked, known = asked + amount * style, known + amount * style
        return CutPair(unit(asked), unit(known), copies, plain)

    def _vary(self, layout: Layout) -> Layout:
        rng = self.rng
        if rng.random() < 0.5:
            layout = _fit(layout, math.exp(rng.uniform(math.log(0.6), math.log(1.5))))
        if rng.random() < 0.35:  # short copies are missed most
            boxes = tuple(self._shorten(box) for box in layout.boxes)
            layout = _fit(Layout(layout.query, layout.reference, boxes))
        return layout

    def _shorten(self, box: IntBox) -> IntBox:
        length = int(self.rng.integers(2, 14))
        q_start, r_start, q_end, r_end = box
        if length >= q_end - q_start:
            return box
        speed = (r_end - r_start) / (q_end - q_start)
        start = int(self.rng.integers(q_start, q_end - length + 1))
        first = round(r_start + (start - q_start) * speed)
        return start, first, start + length, first + max(SHORTEST, round(length * speed))

    def _split_footage(self) -> list[tuple[list[Footage], list[Footage]]]:
        """Films and photographs of either side; no group is on both."""
        rng, cutter = self.rng, self.cutter
        order = rng.choice(len(cutter.films), len(cutter.films), replace=False, p=cutter.chances)
        if rng.random() < 0.2:  # all of one kind: drawn, of one sport, of streets at night
            alike = np.argsort(-cutter.likeness[order[0]])[:LOOKALIKES]
            order = rng.permutation(alike)
        films = [cutter.films[number] for number in order]
        photos = [cutter.photos[number] for number in rng.permutation(len(cutter.photos))]
        half, other = len(films) // 2, len(photos) // 2
        groups = {each.group for each in films[:half]}
        rest = [each for each in films[half:] if each.group not in groups]
        return [(films[:half], photos[:other]), (rest, photos[other:])]

    def _timeline(self, seconds: int, films: list[Footage], photos: list[Footage]) -> list[Shot]:
        rng = self.rng
        share, shots, at, taken = float(rng.choice([0.15, 0.4, 0.8])), [], 0.0, [0, 0]
        while at < seconds:
            is_film = bool(films) and rng.random() < share
            choice = films if is_film else photos
            footage = choice[taken[is_film] % len(choice)]
            taken[is_film] += 1
            if is_film:
                length = min(rng.uniform(3, 30), footage.seconds)
                first = rng.uniform(0, max(footage.seconds - length, 1e-9))
            else:
                length, first = rng.uniform(2, 16), rng.uniform(0, 5)
            stillness = rng.uniform(0.2, 0.9) if rng.random() < 0.15 else 0.0
            pace = 1.0 if is_film else math.exp(rng.uniform(math.log(0.05), math.log(1.5)))
            shots.append(Shot(at, at + length, footage, first, stillness, pace))
            at += length
        return shots

    def _add_neighbours(self, query: list[Shot], reference: list[Shot], layout: Layout) -> None:
        """Two moments of one film that have no second in common, one on each side."""
        rng = self.rng
        long = [each for each in self.cutter.films if each.seconds >= 14]
        if not long:
            return
        film = long[int(rng.integers(len(long)))]
        half = film.seconds / 2 - 1
        lengths = rng.uniform(4, half, 2)
        firsts = [rng.uniform(0, half - lengths[0]), half + 2 + rng.uniform(0, half - lengths[1])]
        stillness = rng.uniform(0.2, 0.8) if rng.random() < 0.3 else 0.0
        sides = [(query, layout.query), (reference, layout.reference)]
        if rng.random() < 0.5:
            sides.reverse()
        for (shots, seconds), length, first in zip(sides, lengths, firsts, strict=True):
            shown = min(length, seconds)
            start = rng.uniform(0, seconds - shown)
            shots.append(Shot(start, start + shown, film, first, stillness))

    def _paste(self, query: Array, reference: list[Shot], box: IntBox) -> Copy:
        """Overwrites the box's seconds of the query with an edited version of the reference."""
        rng = self.rng
        q_start, r_start, q_end, r_end = box
        run, rise = q_end - q_start, r_end - r_start
        seconds = np.arange(run) + 0.5
        is_cut_up = abs(math.log(rise / run)) > 0.12 and rng.random() < 0.4
        shown = self._cut_up(seconds, run, rise) if is_cut_up else seconds * rise / run
        if rise > 3:  # nobody starts a copy on a second of the original
            shown = shown + rng.uniform(-0.5, 0.5)
        shown = np.clip(shown, 0, rise - 1e-3)
        if run >= 4 and rng.random() < 0.1:
            shown = rise - 1e-3 - shown
        version = int(rng.integers(1, self.cutter.versions)) if rng.random() < 0.88 else 0
        rows = render(reference, r_start + shown, version)
        if rng.random() < 0.4:  # an edit that nobody has thought of, the same in all frames
            rows = rows + rng.uniform(0, 0.45) * self._draw_direction()
        if rng.random() < 0.5:
            rows = self._blur(rows, 0.15)
        if run >= 8 and rng.random() < 0.15:  # something hides it for a while
            hidden = int(rng.integers(1, max(2, run // 5)))
            at = int(rng.integers(1, run - hidden))
            rows[at : at + hidden] = query[q_start + at : q_start + at + hidden]
        query[q_start:q_end] = rows
        return Copy(box, r_start + shown)

    def _cut_up(self, seconds: Seconds, run: int, rise: int) -> Seconds:
        """Pieces at the film's own pace with jumps between them, or pauses."""
        count = int(self.rng.integers(1, max(2, min(6, run // 2)) + 1))
        cuts = np.sort(self.rng.uniform(0, run, count))
        gaps = self.rng.dirichlet(np.ones(count)) * (rise - run)
        shown = seconds + ((seconds[:, None] > cuts) * gaps).sum(axis=1)
        if rise < run:
            shown = np.maximum.accumulate(np.minimum(shown, rise))
        return np.clip(shown, 0, rise)

    def _share_cards(self, query: Array, reference: Array, boxes: Sequence[IntBox]) -> None:
        card = self._draw_row()
        for _ in range(int(self.rng.integers(1, 3))):
            for side, rows in enumerate((query, reference)):
                length = int(self.rng.integers(1, 5))
                start = self._find_free(len(rows), length, [box[side::2] for box in boxes])
                if start is not None:
                    noise = self.rng.normal(0, 0.01, (length, len(card)))
                    rows[start : start + length] = card + noise

    def _find_free(self, seconds: int, length: int, taken: Sequence[tuple[int, ...]]) -> int | None:
        if seconds <= length:
            return None
        last = seconds - length
        for _ in range(6):
            start = int(self.rng.choice([0, last, int(self.rng.integers(last + 1))]))
            if all(start + length <= low or high <= start for low, high in taken):
                return start
        return None

    def _blur(self, rows: Array, most: float) -> Array:
        noise = self.rng.standard_normal(rows.shape, np.float32) / math.sqrt(rows.shape[1])
        return rows + np.float32(self.rng.uniform(0, most)) * noise

    def _draw_row(self) -> Array:
        footage = self.cutter.footage[int(self.rng.integers(len(self.cutter.footage)))]
        version = int(self.rng.integers(footage.versions))
        row: Array = footage.rows[version, int(self.rng.integers(footage.rows.shape[1]))]
        return row

    def _draw_direction(self) -> Array:
        shape = (1, self.cutter.footage[0].rows.shape[2])
        found: Array = unit(self.rng.standard_normal(shape, np.float32))[0]
        return found


def render(shots: Sequence[Shot], seconds: Seconds, version: int) -> Array:
    """Descriptors of a video at these seconds; later shots lie over earlier ones."""
    rows = np.zeros((len(seconds), shots[0].footage.rows.shape[2]), np.float32)
    for shot in shots:
        inside = (seconds >= shot.start) & (seconds < shot.end)
        if inside.any():
            passed = (seconds[inside] - shot.start) * shot.pace
            shown = shot.footage.show(version, shot.first + passed)
            still = np.float32(shot.stillness)
            rows[inside] = (1 - still) * shown + still * shot.footage.means[version]
    return rows
