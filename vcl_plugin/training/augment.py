"""Changes to a pair that keep its truth: other geometry, other directions, rougher descriptors.

In: a `Geometry` or a `TrainingPair`, and a random generator. Out: a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import unit
from retrieval.plugins import Array
from vcl_plugin.evaluation.composition import MAX_SPEED, Box, Geometry
from vcl_plugin.training.recipe import Augment

MIN_SIDE = 2.0  # seconds; what a cut leaves below that is no segment
REFLECTIONS = 12  # mirrors whose product turns the feature space
Draw = np.random.Generator


@dataclass(frozen=True)
class TrainingPair:
    """A pair to learn from. `boxes` is None where nobody marked them, `is_copy` where nobody said.

    What lies in a `doubtful` box may be a copy or not: its cells teach no objectness. `weight`
    scales every term of the pair's loss; `is_taught` says that a teacher, not a person, marked it.
    """

    query: Array  # (n, 256)
    reference: Array  # (m, 256)
    boxes: NDArray[np.float32] | None  # (k, 4) seconds; no row: surely no copy
    is_copy: bool | None
    weight: float = 1.0
    key: str = ""
    doubtful: NDArray[np.float32] | None = None  # (k, 4) seconds
    is_taught: bool = False

    def move_boxes(
        self, move: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    ) -> TrainingPair:
        """The pair with `move` applied to every box that it has."""
        boxes = None if self.boxes is None else move(self.boxes)
        doubtful = None if self.doubtful is None else move(self.doubtful)
        return replace(self, boxes=boxes, doubtful=doubtful)


def vary_geometry(row: Geometry, draw: Draw, max_frames: int) -> Geometry:
    """The same kind of pair at another scale, a part of it, or with shorter or more copies."""
    row = _scale(row, draw, max_frames)
    if draw.random() < 0.35:
        row = _crop(row, draw)
    if draw.random() < 0.25:
        row = _shorten(row, draw)
    if draw.random() < 0.25:
        row = _add_copy(row, draw)
    return row


def _scale(row: Geometry, draw: Draw, max_frames: int) -> Geometry:
    longest = max(row.query_frames, row.reference_frames)
    high = min(1.7, max_frames / longest)
    factor = float(np.exp(draw.uniform(np.log(min(0.6, high)), np.log(high))))
    frames = [max(8, int(each * factor)) for each in (row.query_frames, row.reference_frames)]
    boxes = [tuple(int(side * factor) for side in box) for box in row.boxes]
    return _rebuilt(row, frames[0], frames[1], boxes) or row


def _crop(row: Geometry, draw: Draw) -> Geometry:
    """A window of the query; what it cuts of a copy is cut of the reference's side too."""
    length = int(draw.uniform(0.4, 1.0) * row.query_frames)
    if length < 12:
        return row
    start = int(draw.integers(0, row.query_frames - length + 1))
    boxes = []
    for q_start, r_start, q_end, r_end in row.boxes:
        speed = (r_end - r_start) / (q_end - q_start)
        low, high = max(q_start, start), min(q_end, start + length)
        if high - low >= MIN_SIDE:
            r_low, r_high = r_start + (low - q_start) * speed, r_start + (high - q_start) * speed
            boxes.append((low - start, round(r_low), high - start, round(r_high)))
    return _rebuilt(row, length, row.reference_frames, boxes) or row


def _shorten(row: Geometry, draw: Draw) -> Geometry:
    """Copies of three to twelve seconds, the ones that are missed most."""
    boxes = []
    for q_start, r_start, q_end, r_end in row.boxes:
        length = int(draw.integers(3, 13))
        if length >= q_end - q_start:
            boxes.append((q_start, r_start, q_end, r_end))
            continue
        speed = (r_end - r_start) / (q_end - q_start)
        start = int(draw.integers(int(q_start), int(q_end) - length + 1))
        r_low = round(r_start + (start - q_start) * speed)
        boxes.append((start, r_low, start + length, r_low + max(2, round(length * speed))))
    return _rebuilt(row, row.query_frames, row.reference_frames, boxes) or row


def _add_copy(row: Geometry, draw: Draw) -> Geometry:
    """One more copy in a free stretch of the query, from anywhere in the reference."""
    length = int(draw.integers(3, 31))
    speed = float(np.exp(draw.uniform(np.log(0.5), np.log(2.0)))) if draw.random() < 0.4 else 1.0
    high = max(2, round(length * speed))
    if length >= row.query_frames or high >= row.reference_frames:
        return row
    start = int(draw.integers(0, row.query_frames - length + 1))
    r_low = int(draw.integers(0, row.reference_frames - high + 1))
    added = (start, r_low, start + length, r_low + high)
    is_free = all(start + length < box[0] or box[2] < start for box in row.boxes)
    boxes = [*row.boxes, added] if is_free else row.boxes
    return _rebuilt(row, row.query_frames, row.reference_frames, boxes) or row


def _rebuilt(
    row: Geometry, query: int, reference: int, boxes: Sequence[Sequence[float]]
) -> Geometry | None:
    """The row with other boxes, those dropped that are no copy any more; None when none is left."""
    kept: list[Box] = []
    for box in boxes:
        q_start, r_start = max(int(box[0]), 0), max(int(box[1]), 0)
        q_end, r_end = min(int(box[2]), query), min(int(box[3]), reference)
        q_side, r_side = q_end - q_start, r_end - r_start
        if min(q_side, r_side) < MIN_SIDE or not 1 / MAX_SPEED <= r_side / q_side <= MAX_SPEED:
            continue
        if all(q_end <= other[0] or other[2] <= q_start for other in kept):
            kept.append((float(q_start), float(r_start), float(q_end), float(r_end)))
    if not kept:
        return None
    return replace(row, query_frames=query, reference_frames=reference, boxes=tuple(sorted(kept)))


def vary_pair(pair: TrainingPair, choices: Augment, draw: Draw) -> TrainingPair:
    """A pair as another uploader or another descriptor would have made it."""
    if draw.random() < choices.reversal:
        pair = reverse_reference(pair)
    if draw.random() < choices.frame_drop:
        pair = drop_frames(pair, draw)
    if draw.random() < choices.same_scene:
        pair = add_same_scenes(pair, draw)
    if draw.random() < choices.swap:
        pair = swap_sides(pair)
    if draw.random() < choices.offset:
        pair = shift_features(pair, draw)
    if choices.noise > 0:
        pair = add_noise(pair, choices.noise * float(draw.random()), draw)
    if draw.random() < choices.rotation:
        pair = turn_features(pair, draw)
    return pair


def reverse_reference(pair: TrainingPair) -> TrainingPair:
    """The reference runs backwards, so every forward copy becomes a reversed one."""
    turned = np.ascontiguousarray(pair.reference[::-1])
    length = len(turned)

    def turn(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        q_start, r_start, q_end, r_end = boxes.T
        return np.stack([q_start, length - r_end, q_end, length - r_start], axis=1)

    return replace(pair.move_boxes(turn), reference=turned)


def swap_sides(pair: TrainingPair) -> TrainingPair:
    swapped = pair.move_boxes(lambda boxes: boxes[:, [1, 0, 3, 2]])
    return replace(swapped, query=pair.reference, reference=pair.query)


def drop_frames(pair: TrainingPair, draw: Draw, most: float = 0.15) -> TrainingPair:
    """Some seconds of the query are gone, as after a jumpy upload; boxes close up."""
    share = most * float(draw.random())
    is_kept = draw.random(len(pair.query)) >= share
    if is_kept.sum() < 8:
        return pair
    before = np.concatenate([[0], np.cumsum(is_kept)])  # kept frames before each second

    def close_up(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        closed = boxes.copy()
        for side in (0, 2):
            closed[:, side] = before[np.clip(boxes[:, side], 0, len(is_kept)).astype(int)]
        return closed[closed[:, 2] - closed[:, 0] >= MIN_SIDE]

    closed = replace(pair.move_boxes(close_up), query=pair.query[is_kept])
    if pair.boxes is not None and len(closed.boxes) < len(pair.boxes):  # type: ignore[arg-type]
        return pair  # a copy dropped to nothing would leave its last frame unlabelled
    return closed


def add_same_scenes(pair: TrainingPair, draw: Draw) -> TrainingPair:
    """Scenes that both videos show, in the same order, without one copying the other.

    Two takes of a scene, or an hour of one fixed camera: frames resemble each other across the
    videos as much as within them, and no second copies another. On the map that is a block, or
    stairs of blocks, where a copy is a line. Half of the scenes move in ways of their own (`Sway`),
    so that moments do resemble each other by what changes in them. Stretches that hold a copy are
    left alone.
    """
    sides = [pair.query.copy(), pair.reference.copy()]
    taken = pair.boxes
    if taken is not None and pair.doubtful is not None:
        taken = np.concatenate([taken, pair.doubtful])
    spans = [_free_span(len(each), taken, side, draw) for side, each in enumerate(sides)]
    scenes = int(draw.integers(1, 5))
    if min(end - start for start, end in spans) < 4 * scenes:
        return pair
    bases = unit(draw.standard_normal((scenes, pair.query.shape[1]), np.float32))
    # Half of the scenes look like something: a frame of one of the videos, elsewhere.
    for known in np.flatnonzero(draw.random(scenes) < 0.5):
        side = sides[int(draw.integers(2))]
        bases[known] = side[int(draw.integers(len(side)))]
    likeness = np.sqrt(draw.uniform(0.3, 0.97, scenes))  # of each side to the scene
    sways = [Sway.draw(draw, pair.query.shape[1]) for _ in range(scenes)]
    for side, (start, end) in zip(sides, spans, strict=True):
        cuts = np.linspace(start, end, scenes + 1).astype(int)
        for place, (low, high) in enumerate(pairwise(cuts)):
            take = unit(draw.standard_normal((1, side.shape[1]), np.float32))
            drift = np.cumsum(_noise((high - low, side.shape[1]), 0.15, draw), axis=0)
            frames = likeness[place] * bases[place] + np.sqrt(1 - likeness[place] ** 2) * take
            frames = frames + draw.uniform(0.1, 1.0) * drift + sways[place].move(high - low, draw)
            side[low:high] = unit(frames.astype(np.float32))
    return replace(pair, query=sides[0], reference=sides[1])


@dataclass(frozen=True)
class Sway:
    """How a scene moves whoever films it and whenever: a tree in the wind, a belt, a street where
    everybody walks the same way. Two takes of it move in the same directions at other times."""

    ways: Array  # (k, 256), as long as the motion is large
    seconds: float  # of one swing, or of one passing
    is_passing: bool

    @classmethod
    def draw(cls, draw: Draw, dimension: int) -> Sway:
        reach = draw.uniform(0.1, 0.7) if draw.random() < 0.5 else 0.0
        ways = unit(draw.standard_normal((int(draw.integers(1, 6)), dimension), np.float32))
        return cls(reach * ways, float(draw.uniform(2, 12)), bool(draw.random() < 0.5))

    def move(self, length: int, draw: Draw) -> Array:
        """(length, 256): one take of it."""
        ways, seconds = len(self.ways), np.arange(length)[:, None]
        if not self.is_passing:  # to and fro, each way at a pace near the scene's
            pace = self.seconds * draw.uniform(0.8, 1.25, ways)
            course = np.sin(2 * np.pi * (seconds / pace + draw.random(ways)))
        else:  # now and then something passes, from the first way to the last
            course = np.zeros((length, ways))
            for start in draw.uniform(-self.seconds, length, 1 + int(length / (2 * self.seconds))):
                along = (seconds - start) / self.seconds * (ways + 1) - 1
                course += np.exp(-((along - np.arange(ways)) ** 2))
        moved: Array = (course @ self.ways).astype(np.float32)
        return moved


def _free_span(
    frames: int, boxes: NDArray[np.float32] | None, side: int, draw: Draw
) -> tuple[int, int]:
    """A stretch of one video, at most 60 seconds, that no copy touches; empty when there is none.

    Where boxes are unknown nothing is free: what lies there might be a copy.
    """
    if boxes is None:
        return 0, 0
    edges = sorted((int(box[side]), int(np.ceil(box[side + 2]))) for box in boxes)
    gaps, reached = [], 0
    for low, high in [*edges, (frames, frames)]:
        gaps.append((reached, low))
        reached = max(reached, high)
    start, end = max(gaps, key=lambda gap: gap[1] - gap[0])
    length = min(end - start, int(draw.integers(5, 61)))
    if length < 1:
        return 0, 0
    start = int(draw.integers(start, end - length + 1))
    return start, start + length


def add_noise(pair: TrainingPair, length: float, draw: Draw) -> TrainingPair:
    query, reference = (
        unit(side + _noise(side.shape, length, draw)) for side in (pair.query, pair.reference)
    )
    return replace(pair, query=query, reference=reference)


def shift_features(pair: TrainingPair, draw: Draw) -> TrainingPair:
    """One direction shared by all frames: unrelated cosines rise from 0 to as much as 0.5."""
    direction = unit(draw.standard_normal((1, pair.query.shape[1]), np.float32))
    shift = direction * np.float32(draw.uniform(0.0, 1.0))
    return replace(pair, query=unit(pair.query + shift), reference=unit(pair.reference + shift))


def turn_features(pair: TrainingPair, draw: Draw) -> TrainingPair:
    """The same random rotation of the feature space on both sides; all cosines stay."""
    mirrors = unit(draw.standard_normal((REFLECTIONS, pair.query.shape[1]), np.float32))
    query, reference = pair.query, pair.reference
    for mirror in mirrors:
        query = query - 2 * np.outer(query @ mirror, mirror)
        reference = reference - 2 * np.outer(reference @ mirror, mirror)
    return replace(pair, query=query, reference=reference)


def _noise(shape: tuple[int, ...], length: float, draw: Draw) -> Array:
    scale = np.float32(length / np.sqrt(shape[1]))
    return draw.standard_normal(shape, np.float32) * scale
