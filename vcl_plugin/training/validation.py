"""How good a network is on pairs it was not trained on, and which threshold and scale suit it.

In: a network and a folder of validation pairs. Out: `Judgement` with F at the best threshold, and
what scores are worth. The referee is `evaluation.metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.plugins import Localizer
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.evaluation.metrics import JudgedPair, Summary, summarize
from vcl_plugin.localize.boxes import iou_matrix
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.model.transvcl import TransVCL

LOWEST_SCORE = 0.01  # boxes below are never looked at; a short run leaves objectness near 0.1
THRESHOLDS = tuple(np.round(np.geomspace(LOWEST_SCORE, 0.9, 46), 4).tolist())
RIGHT_IOU = 0.3  # a found segment counts as right for calibration from here on


@dataclass(frozen=True)
class Judgement:
    """A network on a validation folder."""

    threshold: float
    summary: Summary
    pairs: list[JudgedPair]  # everything above LOWEST_SCORE, for calibration

    def as_dict(self) -> dict[str, Any]:
        return {"threshold": self.threshold, **self.summary.as_dict()}


def judge_network(model: TransVCL, folder: Folder, count: int = 0) -> Judgement:
    """F of a network at the threshold that suits this folder best."""
    pairs = localize_folder(TransVCLLocalizer(model, min_score=LOWEST_SCORE), folder, count)
    threshold, summary = choose_threshold(pairs)
    return Judgement(threshold, summary, pairs)


def localize_folder(localizer: Localizer, folder: Folder, count: int = 0) -> list[JudgedPair]:
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


def calibrate(score: float, calibration: tuple[float, float]) -> float:
    """The score's logit times slope plus offset, as a probability again.

    >>> calibrate(0.25, (1.0, 0.0))
    0.25
    """
    slope, offset = calibration
    if (slope, offset) == (1.0, 0.0) or not 0.0 < score < 1.0:
        return min(max(score, 0.0), 1.0)
    return 1.0 / (1.0 + math.exp(-(slope * math.log(score / (1.0 - score)) + offset)))


def _logit(score: float) -> float:
    clipped = min(max(score, 1e-6), 1 - 1e-6)
    return math.log(clipped / (1 - clipped))
