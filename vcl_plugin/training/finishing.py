"""Trained weights made ready to ship: a rating of what they find, and the threshold to use.

In: weights, pairs of the training split and a validation folder. Out: a weights file with complete
`WeightsFacts`: the numbers of the pipeline, those of the detector alone, and what both reach.
The rating is fitted on training pairs, the threshold is chosen on validation pairs; test pairs are
never looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from retrieval.records import Segment
from vcl_plugin.evaluation.folder import Folder, LabelledPair
from vcl_plugin.evaluation.metrics import JudgedPair, Summary, summarize
from vcl_plugin.localize.detection import calibrate
from vcl_plugin.localize.pipeline import Pipeline
from vcl_plugin.localize.rating import Facts, Rating, Support, choose_segments, rate_segments
from vcl_plugin.localize.weights import Finish, open_weights
from vcl_plugin.localize.zoom import Zoom
from vcl_plugin.model.checkpoint import save_transvcl
from vcl_plugin.training.augment import TrainingPair
from vcl_plugin.training.findings import (
    CANDIDATE_SCORE,
    Finding,
    find_all,
    find_labelled,
    find_pair,
)
from vcl_plugin.training.limits import choose_cascade
from vcl_plugin.training.pairs import PairSet
from vcl_plugin.training.recipe import Recipe
from vcl_plugin.training.validation import (
    bound_false_alarms,
    expected_calibration_error,
    fit_calibration,
    judge_network,
    prefer_point,
)

Rated = tuple[LabelledPair, list[Segment]]
RIGHT, WRONG = 0.3, 0.1  # IoU with the truth; between them a candidate teaches nothing
ZOOM = Zoom()
# Even steps of the logit: most candidates are rated close to 0 or 1.
RATINGS = tuple((1 / (1 + np.exp(-np.linspace(-3.0, 10.0, 66)))).tolist())
UNITS, COMMITTEE, FIT_STEPS = 16, 8, 1300
# Without it F on validation is .002 higher, and twice as many look-alikes are found beside copies.
MOST_SUPPORT = 1.1
SUPPORTS = tuple(Support(weight, -1.0, MOST_SUPPORT) for weight in (0.0, 0.3, 0.6, 1.0, 1.5, 2.5))
LOOKS_SHARE = 0.25  # of the pairs; each is looked at a dozen times


@dataclass(frozen=True)
class Finished:
    """What finishing found: written into the weights file."""

    rating: Rating | None
    zoom: Zoom | None
    min_rating: float
    support: Support  # of the pair as a whole for its segments
    validation: Summary
    calibration_error: float

    @property
    def numbers(self) -> Finish | None:
        """Those that the localizer needs; None where there was nothing to fit a rating on."""
        if self.rating is None:
            return None
        return Finish(CANDIDATE_SCORE, self.rating, self.min_rating, self.zoom, self.support)


def finish_weights(
    weights: Path,
    out: Path,
    pairs: PairSet,
    recipe: Recipe,
    folder: Folder,
    count: int = 800,
    processes: int = 1,
    on_pairs: Callable[[int, int], None] = lambda done, total: None,
) -> Finished:
    """Fit rating and thresholds for `weights` and write them, with the weights, to `out`.

    The detector alone gets a threshold and a calibration of its own, for the method
    `transvcl-detector`. `on_pairs(done, total)` follows the looking.
    """
    looked_at = math.ceil(LOOKS_SHARE * count)
    done, total = 0, count + len(folder.pairs) + looked_at

    def advance(more: int) -> None:
        nonlocal done
        done += more
        on_pairs(done, total)

    found = find_all(weights, pairs, recipe, folder, count, looked_at, ZOOM, processes, advance)
    finished = finish_findings(found.learnt, found.judged, folder, ZOOM, recipe.loop.finish_far)
    limits = choose_cascade(found.looks)
    model, facts = open_weights(weights)
    counts = {
        "pairs": len(found.learnt),
        "candidates": sum(len(each.segments) for each in found.learnt),
        "validation_pairs": len(folder.pairs),
    }
    plain = judge_network(model, folder, is_refined=False)
    reached = {
        "detector_alone": plain.as_dict(),
        "finishing": counts,
        "validation": finished.validation.as_dict(),
        "calibration_error": round(finished.calibration_error, 4),
    }
    facts = replace(
        facts,
        min_score=plain.threshold,
        calibration=fit_calibration(plain.pairs),
        cascade=limits,
        finish=finished.numbers,
        descriptor=read_descriptor(folder),
        history={**facts.history, **reached},
    )
    save_transvcl(model, out, facts.as_dict())
    return finished


def read_descriptor(folder: Folder) -> str | None:
    """The descriptor of a folder of `vcl benchmark make`; of any other folder nobody knows it."""
    recipe = folder.path / "recipe.json"
    if not recipe.exists():
        return None
    found: str | None = json.loads(recipe.read_text(encoding="utf-8")).get("descriptor")
    return found


def finish_localizer(
    pipeline: Pipeline, pairs: Iterable[TrainingPair], folder: Folder, max_far: float = 1.0
) -> Finished:
    """Rating and threshold for any method, so that all of them can be given the same."""
    learnt = [find_pair(pipeline, pair.query, pair.reference, pair.boxes) for pair in pairs]
    judged = [find_labelled(pipeline, folder, pair) for pair in folder.pairs]
    return finish_findings(learnt, judged, folder, pipeline.zoom, max_far)


def finish_findings(
    learnt: Sequence[Finding],
    judged: Sequence[Finding],
    folder: Folder,
    zoom: Zoom | None,
    max_far: float,
) -> Finished:
    """A rating fitted on what was found in training pairs, and a threshold chosen on the validation
    folder, see `choose_point`; the scores are calibrated on that folder too."""
    rating = fit_rating(*stack_findings(learnt))
    rated = [
        (pair, rate_finding(each, rating)) for pair, each in zip(folder.pairs, judged, strict=True)
    ]
    logits = [0.0 if rating is None else each.logit for each in judged]
    return calibrate_point(rated, logits, rating, zoom, max_far)


def stack_findings(found: Sequence[Finding]) -> tuple[Facts, NDArray[np.float64]]:
    """Facts of all candidates, and the best IoU of each with a true box."""
    none = Finding()
    return (
        np.concatenate([none.facts, *(each.facts for each in found)]),
        np.concatenate([none.ious, *(each.ious for each in found)]),
    )


def rate_finding(finding: Finding, rating: Rating | None) -> list[Segment]:
    """The candidates of one pair, scored anew, before any threshold."""
    if rating is None:
        return finding.segments
    return rate_segments(finding.segments, finding.facts, rating)


def calibrate_point(
    rated: Sequence[Rated],
    logits: Sequence[float],
    rating: Rating | None,
    zoom: Zoom | None,
    max_far: float,
) -> Finished:
    """Support and threshold chosen on validation pairs, and scores calibrated on them."""
    support, threshold, summary = choose_point(rated, logits, max_far)
    judged = [
        judge_candidates(pair, found, RATINGS[0])
        for pair, found in lift_all(rated, logits, support)
    ]
    scale = fit_calibration(judged) if rating is not None else (1.0, 0.0)
    return Finished(
        rating=None if rating is None else rating.calibrated(*scale),
        zoom=zoom,
        min_rating=calibrate(threshold, scale),
        support=replace(support, weight=scale[0] * support.weight, most=scale[0] * support.most),
        validation=summary,
        calibration_error=expected_calibration_error(judged, scale),
    )


def choose_point(
    rated: Sequence[Rated], logits: Sequence[float], max_far: float = 1.0
) -> tuple[Support, float, Summary]:
    """Support and threshold by `prefer_point`, and what they reach."""
    points: list[tuple[Support, float, Summary]] = []
    bounds = []
    for support in SUPPORTS if any(logits) else SUPPORTS[:1]:
        lifted = lift_all(rated, logits, support)
        for threshold in RATINGS:
            judged = [judge_candidates(pair, found, threshold) for pair, found in lifted]
            points.append((support, threshold, summarize(judged)))
            bounds.append(bound_false_alarms(judged))
    return points[prefer_point([each.f_score for _, _, each in points], bounds, max_far)]


def lift_all(rated: Sequence[Rated], logits: Sequence[float], support: Support) -> list[Rated]:
    return [
        (pair, [support.lift(each, logit) for each in found])
        for (pair, found), logit in zip(rated, logits, strict=True)
    ]


def judge_candidates(
    pair: LabelledPair, candidates: Sequence[Segment], threshold: float
) -> JudgedPair:
    """The pair as a localizer with that threshold answers it."""
    found = choose_segments(candidates, threshold)
    return JudgedPair(
        query_id=pair.query_id,
        reference_id=pair.reference_id,
        found=[each.box for each in found],
        truth=pair.truth,
        scores=[each.score for each in found],
        topic=pair.topic,
        source=pair.source,
    )


def fit_rating(
    facts: NDArray[np.float64], ious: NDArray[np.float64], seed: int = 0
) -> Rating | None:
    """A rating of candidates by their facts; None where there is nothing to tell apart.

    It is small, decayed and stopped early, because a few thousand candidates of a few hundred
    sources are soon learnt by heart. With 1 200 candidates 450 steps were best on validation, with
    3 300 candidates 1 300 steps.
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
