"""Labels from a teacher for pairs that nobody marked: the paper's semi-supervised half.

In: a trained network and pairs of which the boxes, or everything, is unknown. Out: rows of labels,
and a `PseudoLabelled` set that carries them.
Called by `run` between the teacher's training and the student's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from retrieval.records import Segment
from vcl_plugin.localize import TransVCLLocalizer, calibrate
from vcl_plugin.model.transvcl import TransVCL
from vcl_plugin.refinement import RefinedLocalizer
from vcl_plugin.training.augment import TrainingPair
from vcl_plugin.training.pairs import PairSet
from vcl_plugin.training.recipe import Pseudo
from vcl_plugin.training.validation import LOWEST_SCORE

Row = dict[str, Any]


def label_pairs(
    teacher: TransVCL,
    pairs: PairSet,
    choices: Pseudo,
    calibration: tuple[float, float] = (1.0, 0.0),
) -> list[Row]:
    """A row a pair: `boxes` (None: do not learn boxes from it) and `is_copy` (None: nor that).

    `calibration` turns the teacher's scores into chances. Without it a teacher of a short run,
    whose scores stay near 0.1, is sure of nothing and calls every copy a negative.
    """
    # With refined ends: what the map says of them no student needs to unlearn.
    localizer = RefinedLocalizer(TransVCLLocalizer(teacher, min_score=LOWEST_SCORE, cascade="off"))
    rows = []
    for number in range(pairs.size):
        pair = pairs.pair(number)
        found: Sequence[Segment] = ()
        if pair.is_copy is not False:  # a pair known to be no copy needs no teacher
            found = [
                replace(each, score=calibrate(each.score, calibration))
                for each in localizer.localize(pair.query, pair.reference)
            ]
        rows.append(judge_pair(found, pair.is_copy, choices))
    return rows


def judge_pair(found: Sequence[Segment], is_copy: bool | None, choices: Pseudo) -> Row:
    """What may be learnt from a teacher's answer, given what is known of the pair.

    A weak label filters: what is known to be no copy has no box whatever the teacher saw, and what
    is known to be one still teaches the video level when no box is sure. Without any label a pair
    with no sure box is a negative only when the teacher saw next to nothing.
    """
    if is_copy is False:
        return {"boxes": [], "is_copy": False}
    sure = [list(each.box) for each in found if each.score >= choices.min_confidence]
    if sure:
        return {"boxes": sure, "is_copy": True}
    if is_copy:
        return {"boxes": None, "is_copy": True}
    best = max((each.score for each in found), default=0.0)
    if best <= 1 - choices.min_negative_confidence:
        return {"boxes": [], "is_copy": False}
    return {"boxes": None, "is_copy": None}


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
            is_copy=row["is_copy"],
            weight=self.weight,
        )
