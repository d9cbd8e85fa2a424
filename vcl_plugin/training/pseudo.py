"""Labels from a teacher for pairs that nobody marked: the paper's semi-supervised half.

In: a trained network and pairs of which the boxes, or everything, is unknown. Out: rows of labels,
and a `PseudoLabelled` set that carries them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from retrieval.records import Segment
from vcl_plugin.evaluation.metrics import JudgedPair
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.model.transvcl import TransVCL
from vcl_plugin.training.augment import TrainingPair
from vcl_plugin.training.pairs import PairSet
from vcl_plugin.training.recipe import Pseudo
from vcl_plugin.training.validation import LOWEST_SCORE, calibrate, fit_calibration

Row = dict[str, Any]


class Trust(NamedTuple):
    """Slope and offset by which a teacher's score becomes the chance that a box is right: in a pair
    of which nothing is known, and in one that is known to be a copy, where a box is right more
    often."""

    any: tuple[float, float]
    copies: tuple[float, float]
    recall: float | None = None  # share of known copies in which the teacher saw something


AS_THEY_ARE = Trust((1.0, 0.0), (1.0, 0.0))


def measure_trust(judged: Sequence[JudgedPair], choices: Pseudo) -> Trust:
    """By what a teacher found in pairs whose truth is known."""
    copies = [each for each in judged if each.truth]
    any_pair = fit_calibration(judged)
    return Trust(any_pair, fit_calibration(copies), _measure_recall(copies, any_pair, choices))


def _measure_recall(
    copies: Sequence[JudgedPair], scale: tuple[float, float], choices: Pseudo
) -> float | None:
    """Share of known copies that the teacher would not have called negatives."""
    floor = 1 - choices.min_negative_confidence
    seen = [any(calibrate(score, scale) > floor for score in each.scores) for each in copies]
    return sum(seen) / len(seen) if seen else None


def label_pairs(
    teacher: TransVCL,
    pairs: PairSet,
    choices: Pseudo,
    trust: Trust = AS_THEY_ARE,
) -> list[Row]:
    """A row a pair: `boxes` (None: do not learn boxes from it), `doubtful` ones, which teach
    nothing, and `is_copy` (None: nothing is learnt from the pair).

    `trust` turns the teacher's scores into chances. Without it a teacher of a short run, whose
    scores stay near 0.1, is sure of nothing.
    """
    may_deny = may_infer_negatives(trust, choices)
    localizer = TransVCLLocalizer(teacher, min_score=LOWEST_SCORE)
    rows = []
    for number in range(pairs.size):
        pair = pairs.pair(number)
        found: Sequence[Segment] = ()
        if pair.is_copy is not False:  # a pair known to be no copy needs no teacher
            found = [
                replace(
                    each, score=calibrate(each.score, trust.copies if pair.is_copy else trust.any)
                )
                for each in localizer.localize(pair.query, pair.reference)
            ]
        rows.append(judge_pair(found, pair.is_copy, choices, may_deny))
    return rows


def may_infer_negatives(trust: Trust, choices: Pseudo) -> bool:
    """Whether a pair in which the teacher saw nothing counts as no copy.

    Off by default. A teacher of a short run called 31 of 31 unlabelled pairs negatives, and 18 of
    them were copies: so it also takes a recall that was measured and is high enough.
    """
    if not choices.infer_negatives:
        return False
    return trust.recall is not None and trust.recall >= choices.min_teacher_recall


def judge_pair(
    found: Sequence[Segment], is_copy: bool | None, choices: Pseudo, may_deny: bool = False
) -> Row:
    """What may be learnt from a teacher's answer, given what is known of the pair.

    A weak label filters: what is known to be no copy has no box whatever the teacher saw, and what
    is known to be one still teaches the video level when no box is sure. Without any label a pair
    with no sure box is a negative only when the teacher saw next to nothing and `may_deny` (see
    `may_infer_negatives`). A box that is neither
    sure nor surely wrong is left out: called background, it would teach the student to miss what
    its teacher missed.
    """
    if is_copy is False:
        return {"boxes": [], "doubtful": [], "is_copy": False}
    sure = [list(each.box) for each in found if each.score >= choices.min_confidence]
    floor = 1 - choices.min_negative_confidence
    doubtful = [list(each.box) for each in found if floor < each.score < choices.min_confidence]
    if sure:
        return {"boxes": sure, "doubtful": doubtful, "is_copy": True}
    if is_copy:
        return {"boxes": None, "doubtful": [], "is_copy": True}
    if doubtful or not may_deny:
        return {"boxes": None, "doubtful": [], "is_copy": None}
    return {"boxes": [], "doubtful": [], "is_copy": False}


class PseudoLabelled:
    """A set whose pairs carry a teacher's labels and the weight lambda_u."""

    def __init__(self, pairs: PairSet, rows: Sequence[Row], weight: float) -> None:
        # A pair that teaches nothing would only take time.
        self.numbers = [n for n, row in enumerate(rows) if row["is_copy"] is not None]
        self.pairs, self.rows, self.weight = pairs, rows, weight
        self.size = len(self.numbers)

    def pair(self, number: int) -> TrainingPair:
        place = self.numbers[number]
        row = self.rows[place]
        boxes = row["boxes"]
        return replace(
            self.pairs.pair(place),
            boxes=None if boxes is None else np.array(boxes, np.float32).reshape(-1, 4),
            doubtful=np.array(row["doubtful"], np.float32).reshape(-1, 4),
            is_copy=row["is_copy"],
            weight=self.weight,
            is_taught=True,
        )
