"""Pairs to learn from: made on the fly from real geometry and a descriptor bank, or read.

In: a recipe's data. Out: `PairSet`s, whose pair number i is the same in every run of one seed.
Numbers, not generators, name the pairs, so a resumed run meets the same ones.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from retrieval.describe.fitting.material import Split
from retrieval.errors import Refused
from vcl_plugin.evaluation.composition import (
    NEGATIVES,
    Composed,
    Composer,
    Geometry,
    read_geometry,
)
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.training.augment import TrainingPair, vary_geometry
from vcl_plugin.training.datasets import read_weak
from vcl_plugin.training.material import Material, fill_material
from vcl_plugin.training.recipe import Recipe

OnViews = Callable[[int, int], None]
# Frames of a fixed camera keep a third to a half of the spread that a gliding one gives them.
STILLNESS = (0.2, 0.85)


class PairSet(Protocol):
    """Numbered pairs, always the same under the same number; `size` 0 means that they never end."""

    size: int

    def pair(self, number: int) -> TrainingPair: ...


class MadePairs:
    """Pairs composed from real copy geometry; number i depends on the seed and on i alone."""

    def __init__(
        self,
        rows: Sequence[Geometry],
        material: Material,
        seed: int = 0,
        size: int = 0,
        copy_share: float = 0.6,
        vary_share: float = 0.0,
        max_frames: int = 500,
        still_share: float = 0.0,
        negatives: Sequence[str] = NEGATIVES,
    ) -> None:
        if not rows:
            raise Refused("no row of the label files can be used; see data.max_frames")
        self.rows, self.material = rows, material
        self.seed, self.size = seed, size
        self.copy_share, self.vary_share, self.max_frames = copy_share, vary_share, max_frames
        self.still_share, self.negatives = still_share, negatives

    def pair(self, number: int) -> TrainingPair:
        draw = np.random.default_rng([self.seed, number])
        composer = Composer(self.material.sources, draw)
        row = self.rows[int(draw.integers(len(self.rows)))]
        if draw.random() < self.vary_share:
            row = vary_geometry(row, draw, self.max_frames)
        if draw.random() < self.copy_share:
            composed = composer.compose_copy(row)
        else:
            kind = self.negatives[int(draw.integers(len(self.negatives)))]
            composed = composer.compose_negative(row, kind)
        boxes = np.array(composed.truth, np.float32).reshape(-1, 4)
        stillness = self._draw_stillness(composed, draw)
        return TrainingPair(
            query=self.material.lookup(composed.query, stillness),
            reference=self.material.lookup(composed.reference, stillness),
            boxes=boxes,
            is_copy=bool(len(boxes)),
            key=f"made/{self.seed}/{number}",
        )

    def _draw_stillness(self, composed: Composed, draw: np.random.Generator) -> dict[str, float]:
        """How little each source moves; nothing for most pairs."""
        if not self.still_share or draw.random() >= self.still_share:
            return {}
        names = sorted(
            {view.source for side in (composed.query, composed.reference) for view in side}
        )
        amounts = draw.uniform(*STILLNESS, len(names))
        return dict(zip(names, amounts.tolist(), strict=True))


class FolderPairs:
    """Pairs of folders in VCSL's layout. `knows_boxes` and `knows_copies` say what may be used of
    their labels: a folder of weak labels knows only which pairs are copies."""

    def __init__(
        self,
        folders: Sequence[Path],
        seed: int = 0,
        knows_boxes: bool = True,
        knows_copies: bool = True,
        max_frames: int = 1200,
    ) -> None:
        self.pairs = [(folder, pair) for folder in map(Folder, folders) for pair in folder.pairs]
        self.weak = {path: read_weak(path) for path in folders}
        self.size = len(self.pairs)
        self.seed, self.max_frames = seed, max_frames
        self.knows_boxes, self.knows_copies = knows_boxes, knows_copies

    def pair(self, number: int) -> TrainingPair:
        folder, labelled = self.pairs[number]
        boxes = np.array(labelled.truth, np.float32).reshape(-1, 4)
        is_copy = bool(len(boxes))
        if weak := self.weak[folder.path]:
            is_copy = weak.get((labelled.query_id, labelled.reference_id), is_copy)
        # A pair that is no copy has no box, and a weak label says as much.
        is_boxed = self.knows_boxes or (self.knows_copies and not is_copy)
        pair = TrainingPair(
            query=np.array(folder.load_features(labelled.query_id), np.float32),
            reference=np.array(folder.load_features(labelled.reference_id), np.float32),
            boxes=boxes if is_boxed else None,
            is_copy=is_copy if self.knows_copies else None,
            key=f"{folder.path}/{labelled.query_id}/{labelled.reference_id}",
        )
        return _cut_to(pair, self.max_frames, np.random.default_rng([self.seed, number]))


def _cut_to(pair: TrainingPair, most: int, draw: np.random.Generator) -> TrainingPair:
    """A window of either side that fits the network, around a copy if there is one."""
    boxes = pair.boxes
    for side, name in ((0, "query"), (1, "reference")):
        frames = getattr(pair, name)
        if len(frames) <= most:
            continue
        low, high = 0, len(frames) - most
        if boxes is not None and len(boxes):
            box = boxes[int(draw.integers(len(boxes)))]
            low = int(np.clip(box[side + 2] - most, 0, high))
            high = int(np.clip(box[side], low, high))
        start = int(draw.integers(low, high + 1))
        pair = replace(pair, **{name: frames[start : start + most]})
        if boxes is not None:
            boxes = _cut_boxes(boxes, side, start, most)
    return replace(pair, boxes=boxes)


def _cut_boxes(boxes: np.ndarray, side: int, start: int, length: int) -> np.ndarray:
    """Boxes inside a window of one axis; the other axis is cut in proportion."""
    cut = boxes.astype(np.float64)
    sides = np.maximum(cut[:, 2:] - cut[:, :2], 1e-6)
    low = np.clip((start - cut[:, side]) / sides[:, side], 0, 1)
    high = np.clip((start + length - cut[:, side]) / sides[:, side], 0, 1)
    ends = np.concatenate(
        [cut[:, :2] + low[:, None] * sides, cut[:, :2] + high[:, None] * sides], 1
    )
    ends[:, [side, side + 2]] -= start
    return ends[((ends[:, 2:] - ends[:, :2]) >= 1).all(axis=1)].astype(np.float32)


class LabelledShare:
    """Some of a set's pairs keep their boxes, fixed by their number; of the others only the video
    label is left (`is_weak`) or nothing. The label fractions of the paper's table 4."""

    def __init__(self, pairs: PairSet, fraction: float, part: str, is_weak: bool = False) -> None:
        if not pairs.size:
            raise Refused("label fractions need a set of fixed size")
        kept = [n for n in range(pairs.size) if (_place(n) < fraction) == (part == "labelled")]
        if not kept:
            raise Refused(f"{fraction:.1%} of {pairs.size} pairs leave none {part}")
        self.pairs, self.numbers, self.size = pairs, kept, len(kept)
        self.part, self.is_weak = part, is_weak

    def pair(self, number: int) -> TrainingPair:
        pair = self.pairs.pair(self.numbers[number])
        if self.part == "labelled":
            return pair
        if not self.is_weak:
            return replace(pair, boxes=None, is_copy=None)
        return replace(pair, boxes=None if pair.is_copy else pair.boxes)


def _place(number: int) -> float:
    """Where a number falls in [0, 1), evenly and always the same."""
    return int(hashlib.sha256(f"label:{number}".encode()).hexdigest()[:8], 16) / 2**32


def open_pairs(
    recipe: Recipe,
    split: Split = "train",
    processes: int = 1,
    on_views: OnViews = lambda d, t: None,
) -> tuple[PairSet, list[PairSet]]:
    """`(labelled, others)` of a recipe; others are weak or unlabelled and need a teacher."""
    data, seed = recipe.data, recipe.loop.seed
    labelled: list[PairSet] = []
    others: list[PairSet] = []
    is_weak = recipe.loop.supervision == "weak"
    given: list[PairSet] = []
    if data.geometry:
        assert data.images
        assert data.videos
        assert data.bank
        rows = [
            row
            for path in data.geometry
            for row in read_geometry(path, data.max_frames)
            if row.split == split
        ]
        material = fill_material(
            data.images, data.videos, data.bank, data.edits_per_source, split, data.descriptor,
            processes, on_views,
        )  # fmt: skip
        given.append(
            MadePairs(
                rows,
                material,
                seed,
                data.pairs,
                data.copy_share,
                recipe.augment.geometry,
                data.max_frames,
                recipe.augment.still,
                data.negatives,
            )
        )
    longest = min(recipe.network.max_frames, 1200)
    if data.folders:
        given.append(FolderPairs(data.folders, seed, max_frames=longest))
    for each in given:
        if data.label_fraction < 1:
            labelled.append(LabelledShare(each, data.label_fraction, "labelled"))
            others.append(LabelledShare(each, data.label_fraction, "unlabelled", is_weak))
        else:
            labelled.append(each)
    for folders, knows in ((data.weak_folders, True), (data.unlabelled_folders, False)):
        if folders:
            others.append(FolderPairs(folders, seed, False, knows, longest))
    return (labelled[0] if len(labelled) == 1 else Alternating(labelled, seed)), others


class Alternating:
    """Several sets in turn, without end; a finite one is gone through in a new order each time.

    The first set has `share` of the turns, the others divide the rest; without a share all have
    as many.
    """

    size = 0

    def __init__(self, sets: Sequence[PairSet], seed: int = 0, share: float | None = None) -> None:
        self.sets, self.seed = list(sets), seed
        self.share = 1 / len(self.sets) if share is None else share
        self._orders: dict[int, tuple[int, np.ndarray]] = {}

    def pair(self, number: int) -> TrainingPair:
        place, turn = self._take_turn(number)
        chosen = self.sets[place]
        if not chosen.size:
            return chosen.pair(turn)
        epoch, turn = divmod(turn, chosen.size)
        if self._orders.get(place, (-1,))[0] != epoch:
            order = np.random.default_rng([self.seed, place, epoch]).permutation(chosen.size)
            self._orders[place] = (epoch, order)
        return chosen.pair(int(self._orders[place][1][turn]))

    def _take_turn(self, number: int) -> tuple[int, int]:
        """Which set a number falls to, and how often that one had a turn before."""
        others = len(self.sets) - 1
        before = math.ceil(number * self.share - 1e-9)  # turns of the first set until now
        if not others or math.ceil((number + 1) * self.share - 1e-9) > before:
            return 0, before
        rest = number - before
        return 1 + rest % others, rest // others
