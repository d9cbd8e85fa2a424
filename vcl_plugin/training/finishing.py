"""Trained weights made ready to ship: a rating of what they find, and the threshold to use.

In: weights, pairs of the training split and a validation folder. Out: a weights file whose facts
hold `min_score` (of the detector), `rating` and `min_rating`, and the numbers they reach.
Called by `run` when training is over. The rating is fitted on training pairs, the threshold chosen
on validation pairs; test pairs are never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from retrieval.plugins import Array, Localizer
from vcl_plugin.boxes import iou_matrix
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.evaluation.metrics import Summary
from vcl_plugin.localize import TransVCLLocalizer
from vcl_plugin.model.checkpoint import load_transvcl, read_facts, save_transvcl
from vcl_plugin.rating import (
    FACTS,
    FinishedLocalizer,
    Rating,
    describe_segments,
    refine_candidates,
)
from vcl_plugin.refinement import cosine_map
from vcl_plugin.training.augment import TrainingPair, vary_pair
from vcl_plugin.training.pairs import PairSet
from vcl_plugin.training.recipe import Recipe
from vcl_plugin.training.validation import (
    choose_threshold,
    expected_calibration_error,
    localize_folder,
)
from vcl_plugin.zoom import Zoom, look_closer

CANDIDATE_SCORE = 0.02  # detector scores from here on are worth a rating
RIGHT, WRONG = 0.3, 0.1  # IoU with the truth; between them a candidate teaches nothing
ZOOM = Zoom()
UNITS, COMMITTEE, FIT_STEPS = 16, 4, 600


@dataclass(frozen=True)
class Finished:
    """What finishing found: written into the weights file."""

    rating: Rating | None
    zoom: Zoom | None
    min_rating: float
    validation: Summary
    calibration_error: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "min_score": CANDIDATE_SCORE,
            "rating": None if self.rating is None else self.rating.as_dict(),
            "zoom": None if self.zoom is None else asdict(self.zoom),
            "min_rating": self.min_rating,
            "validation": self.validation.as_dict(),
            "calibration_error": round(self.calibration_error, 4),
        }


def finish_weights(
    weights: Path,
    out: Path,
    pairs: PairSet,
    recipe: Recipe,
    folder: Folder,
    count: int = 800,
    on_pair: Callable[[], None] = lambda: None,
) -> Finished:
    """Fit rating and threshold for `weights` and write them, with the weights, to `out`."""
    model = load_transvcl(weights)
    localizer = TransVCLLocalizer(model, min_score=CANDIDATE_SCORE, cascade="off")
    chosen = draw_pairs(pairs, recipe, count)
    finished = finish_localizer(localizer, chosen, folder, ZOOM, on_pair)
    save_transvcl(model, out, {**read_facts(weights), **finished.as_dict()})
    return finished


def finish_localizer(
    localizer: Localizer,
    pairs: Iterable[TrainingPair],
    folder: Folder,
    zoom: Zoom | None = None,
    on_pair: Callable[[], None] = lambda: None,
) -> Finished:
    """Rating and threshold for any method, so that all of them can be given the same."""
    facts, ious = collect_candidates(localizer, pairs, zoom, on_pair)
    rating = fit_rating(facts, ious)
    finished = FinishedLocalizer(localizer, rating, zoom=zoom)
    judged = localize_folder(finished, folder, on_pair=on_pair)
    threshold, summary = choose_threshold(judged)
    return Finished(rating, zoom, threshold, summary, expected_calibration_error(judged))


def draw_pairs(pairs: PairSet, recipe: Recipe, count: int) -> Iterable[TrainingPair]:
    """Training pairs that the network has not met: numbers from the far end of an endless set."""
    first = 0 if pairs.size else 10**9
    for number in range(min(count, pairs.size or count)):
        draw = np.random.default_rng([recipe.loop.seed, number, 3])
        pair = pairs.pair(first + number)
        if pair.boxes is not None:
            yield vary_pair(pair, recipe.augment, draw)


def collect_candidates(
    localizer: Localizer,
    pairs: Iterable[TrainingPair],
    zoom: Zoom | None = None,
    on_pair: Callable[[], None] = lambda: None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Facts of everything a localizer finds, refined, and its best IoU with a true box."""
    facts, ious = [np.zeros((0, len(FACTS)))], [np.zeros(0)]
    for pair in pairs:
        found = look_closer(localizer, pair.query, pair.reference, zoom)
        if found:
            similarity = cosine_map(pair.query, pair.reference)
            refined = refine_candidates(similarity, found)
            facts.append(describe_segments(similarity, refined))
            ious.append(_best_ious([each.box for each in refined], pair.boxes))
        on_pair()
    return np.concatenate(facts), np.concatenate(ious)


def _best_ious(boxes: Sequence[Sequence[float]], truth: Array | None) -> NDArray[np.float64]:
    if truth is None or not len(truth):
        return np.zeros(len(boxes))
    best: NDArray[np.float64] = iou_matrix(list(boxes), truth).max(axis=1).astype(np.float64)
    return best


def fit_rating(
    facts: NDArray[np.float64], ious: NDArray[np.float64], seed: int = 0
) -> Rating | None:
    """A rating of candidates by their facts; None where there is nothing to tell apart.

    Small, decayed and stopped early: a few thousand candidates of a few hundred sources are soon
    learnt by heart (on validation, 600 steps gave F .844, 1500 steps .822, a straight line .818).
    """
    is_clear = (ious >= RIGHT) | (ious <= WRONG)
    right = (ious[is_clear] >= RIGHT).astype(np.float32)
    if not len(right) or right.min() == right.max():
        return None
    middle, scale = facts[is_clear].mean(axis=0), facts[is_clear].std(axis=0) + 1e-6
    scaled = np.clip((facts[is_clear] - middle) / scale, -6, 6)
    x, target = torch.from_numpy(scaled).float(), torch.from_numpy(right)
    models = [_fit_layer(x, target, seed + each) for each in range(COMMITTEE)]
    hidden, weights, bias = [], [], 0.0
    for first, last in models:  # their mean is one wider layer
        hidden += torch.cat([first.weight, first.bias[:, None]], dim=1).tolist()
        weights += (last.weight[0] / COMMITTEE).tolist()
        bias += float(last.bias) / COMMITTEE
    return Rating(
        tuple(middle.tolist()),
        tuple(scale.tolist()),
        tuple(tuple(round(each, 6) for each in row) for row in hidden),
        (*(round(each, 6) for each in weights), bias),
    )


def _fit_layer(x: Tensor, target: Tensor, seed: int) -> tuple[nn.Linear, nn.Linear]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first, last = nn.Linear(x.shape[1], UNITS), nn.Linear(UNITS, 1)
    optimizer = torch.optim.AdamW([*first.parameters(), *last.parameters()], 0.01, weight_decay=0.1)
    for _ in range(FIT_STEPS):
        optimizer.zero_grad()
        logits = last(torch.tanh(first(x))).squeeze(1)
        F.binary_cross_entropy_with_logits(logits, target).backward()
        optimizer.step()
    return first.requires_grad_(False), last.requires_grad_(False)
