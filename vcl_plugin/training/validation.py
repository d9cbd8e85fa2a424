"""How good a network is on pairs it was not trained on, and which threshold and scale suit it.

In: a network and a folder of validation pairs. Out: `Judgement` with F at the best threshold, or
which of several points to work at.
The referee is `evaluation.metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.plugins import Localizer
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.evaluation.metrics import JudgedPair, Summary, summarize
from vcl_plugin.localize.boxes import iou_matrix
from vcl_plugin.localize.detection import TransVCLLocalizer, calibrate
from vcl_plugin.localize.ends import RefinedLocalizer
from vcl_plugin.model.transvcl import TransVCL

LOWEST_SCORE = 0.01  # boxes below are never looked at; a short run leaves objectness near 0.1
THRESHOLDS = tuple(np.round(np.geomspace(LOWEST_SCORE, 0.9, 46), 4).tolist())
F_TOLERANCE = 0.015  # what a few hundred pairs cannot tell apart
DEVIATIONS = 1.2816  # of a normal variable, exceeded once in ten times
RIGHT_IOU = 0.3  # a found segment counts as right for calibration from here on


@dataclass(frozen=True)
class Judgement:
    """A network on a validation folder."""

    threshold: float
    summary: Summary
    pairs: list[JudgedPair]  # everything above LOWEST_SCORE, for calibration

    def as_dict(self) -> dict[str, Any]:
        return {"threshold": self.threshold, **self.summary.as_dict()}


def judge_network(
    model: TransVCL, folder: Folder, count: int = 0, is_refined: bool = True
) -> Judgement:
    """F of a network as it would be used, at the threshold that suits this folder best."""
    localizer: Localizer = TransVCLLocalizer(model, min_score=LOWEST_SCORE, cascade="off")
    if is_refined:
        localizer = RefinedLocalizer(localizer)
    pairs = localize_folder(localizer, folder, count)
    threshold, summary = choose_threshold(pairs)
    return Judgement(threshold, summary, pairs)


def localize_folder(
    localizer: Localizer,
    folder: Folder,
    count: int = 0,
    on_pair: Callable[[], None] = lambda: None,
) -> list[JudgedPair]:
    """Every pair of the folder with what the localizer finds; `count` takes an even sample."""
    chosen = folder.pairs
    if 0 < count < len(chosen):
        # Folders list copies first; an even sample has as many of both kinds as the folder.
        chosen = [chosen[i * len(chosen) // count] for i in range(count)]
    judged = []
    for pair in chosen:
        query = folder.load_features(pair.query_id)
        reference = folder.load_features(pair.reference_id)
        found = localizer.localize(query, reference)
        judged.append(
            JudgedPair(
                query_id=pair.query_id,
                reference_id=pair.reference_id,
                found=[each.box for each in found],
                truth=pair.truth,
                scores=[each.score for each in found],
                query_frames=len(query),
                reference_frames=len(reference),
                topic=pair.topic,
            )
        )
        on_pair()
    return judged


def above(pair: JudgedPair, threshold: float) -> JudgedPair:
    """The pair as a stricter localizer would have answered it."""
    kept = [i for i, score in enumerate(pair.scores) if score >= threshold]
    return JudgedPair(
        query_id=pair.query_id,
        reference_id=pair.reference_id,
        found=[pair.found[i] for i in kept],
        truth=pair.truth,
        scores=[pair.scores[i] for i in kept],
        query_frames=pair.query_frames,
        reference_frames=pair.reference_frames,
        topic=pair.topic,
    )


def choose_threshold(
    pairs: Sequence[JudgedPair], thresholds: Sequence[float] = THRESHOLDS
) -> tuple[float, Summary]:
    """The threshold with the best F-score; of equal ones the lowest."""
    best: tuple[float, Summary] | None = None
    for threshold in thresholds:
        summary = summarize([above(pair, threshold) for pair in pairs])
        if best is None or summary.f_score > best[1].f_score:
            best = (threshold, summary)
    assert best is not None
    return best


def prefer_point(f_scores: Sequence[float], bounds: Sequence[float], max_far: float) -> int:
    """Which of several points to work at, given the F of each and what its false alarms stay below.

    The best F of all that stay below `max_far` (with 90 % confidence, not by the luck of these
    pairs: a threshold chosen for a FAR of .013 on 150 negatives once gave .067 on others); where
    none does, the lowest bound. And of all within `F_TOLERANCE` of that F, which a few hundred
    pairs cannot tell apart, the fewest false alarms: an accusation costs more than a miss.
    """
    excess = np.maximum(np.asarray(bounds) - max_far, 0.0)
    is_allowed = excess <= excess.min()
    best = float(np.asarray(f_scores)[is_allowed].max())
    rest = np.flatnonzero(is_allowed & (np.asarray(f_scores) >= best - F_TOLERANCE))
    return min(rest.tolist(), key=lambda each: (bounds[each], -f_scores[each]))


def bound_false_alarms(judged: Sequence[JudgedPair]) -> float:
    """What the share of false alarms stays below with 90 % confidence, on sources of this kind.

    Pairs cut from one piece of footage fail together, so they are samples of few sources and not
    many samples: the bound is that of the spread over sources where it is above Wilson's.
    """
    negatives = [each for each in judged if not each.is_copy]
    groups: dict[str, list[bool]] = {}
    for number, pair in enumerate(negatives):
        groups.setdefault(pair.source or f"pair {number}", []).append(bool(pair.found))
    count, sources = len(negatives), [alarms for alarms in groups.values() if len(alarms) > 1]
    share = sum(bool(each.found) for each in negatives) / max(count, 1)
    if len(sources) < 2:
        return upper_bound(share, count)
    common = sum(map(sum, sources)) / sum(map(len, sources))
    spread = sum((sum(alarms) - common * len(alarms)) ** 2 for alarms in sources)
    spread *= len(sources) / (len(sources) - 1)
    single = [alarms[0] for alarms in groups.values() if len(alarms) == 1]
    spread += sum(single) * (1 - sum(single) / max(len(single), 1))
    # Student's quantile by Cornish and Fisher: with few sources 90 % takes a wider reach.
    reach = DEVIATIONS * (1 + (DEVIATIONS**2 + 1) / (4 * (len(sources) - 1)))
    return max(upper_bound(share, count), share + reach * math.sqrt(spread) / count)


def upper_bound(share: float, count: int, deviations: float = DEVIATIONS) -> float:
    """What a share seen in `count` cases stays below with 90 % confidence, by Wilson.

    >>> round(upper_bound(0.0, 150), 4), round(upper_bound(5 / 480, 480), 4)
    (0.0108, 0.0182)
    """
    if not count:
        return 0.0
    square = deviations**2 / count
    middle = share + square / 2
    reach = math.sqrt(square * share * (1 - share) + square**2 / 4)
    return (middle + reach) / (1 + square)


def fit_calibration(pairs: Sequence[JudgedPair]) -> tuple[float, float]:
    """Slope and offset on a score's logit, so that of segments scored p a share of p is right.

    Platt's method with his priors, by Newton's steps, each shortened until it helps: a few sure
    mistakes make the full step overshoot. (1, 0) where there is nothing to fit.
    """
    logits, rights = [], []
    for pair in pairs:
        overlaps = iou_matrix(list(pair.found), list(pair.truth)) if pair.truth else None
        for i, score in enumerate(pair.scores):
            logits.append(_logit(score))
            rights.append(overlaps is not None and float(overlaps[i].max()) >= RIGHT_IOU)
    if not logits or all(rights) or not any(rights):
        return (1.0, 0.0)
    x = np.array([logits, np.ones(len(logits))]).T
    right = np.array(rights, float)
    many, few = right.sum(), len(right) - right.sum()
    target = np.where(right > 0, (many + 1) / (many + 2), 1 / (few + 2))

    def misfit(weights: NDArray[Any]) -> float:
        z = x @ weights
        return float((np.logaddexp(0, z) - target * z).sum())

    weights: NDArray[Any] = np.array([1.0, 0.0])
    for _ in range(50):
        guess = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        slope = x.T @ (target - guess)
        curve = (x * (guess * (1 - guess))[:, None]).T @ x + 1e-6 * np.eye(2)
        step = np.linalg.solve(curve, slope)
        while np.abs(step).max() > 1e-6 and misfit(weights + step) > misfit(weights):
            step = step / 2
        weights = weights + step
        if np.abs(step).max() <= 1e-6:
            break
    # A falling slope would turn the order of segments round.
    return (max(float(weights[0]), 0.05), float(weights[1]))


def expected_calibration_error(
    pairs: Sequence[JudgedPair], calibration: tuple[float, float] = (1.0, 0.0), bins: int = 10
) -> float:
    """Mean distance between what scores promise and how often they are right, over score bins."""
    scores, rights = [], []
    for pair in pairs:
        overlaps = iou_matrix(list(pair.found), list(pair.truth)) if pair.truth else None
        for i, score in enumerate(pair.scores):
            scores.append(calibrate(score, calibration))
            rights.append(overlaps is not None and float(overlaps[i].max()) >= RIGHT_IOU)
    if not scores:
        return 0.0
    place = np.minimum((np.array(scores) * bins).astype(int), bins - 1)
    error = 0.0
    for each in range(bins):
        members = place == each
        if members.any():
            promised = float(np.array(scores)[members].mean())
            error += members.mean() * abs(promised - float(np.array(rights)[members].mean()))
    return float(error)


def _logit(score: float) -> float:
    clipped = min(max(score, 1e-6), 1 - 1e-6)
    return math.log(clipped / (1 - clipped))
