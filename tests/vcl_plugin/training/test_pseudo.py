"""Semi and weak supervision: what a teacher's answer may teach, and which pairs need one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from retrieval.errors import Refused
from retrieval.records import Segment, Span
from tests.vcl_plugin.training.planted_pairs import PlantedPairs, plant
from tests.vcl_plugin.training.test_run import RECIPE, make_folder
from vcl_plugin.evaluation.metrics import JudgedPair
from vcl_plugin.training.pairs import Alternating, FolderPairs, LabelledShare
from vcl_plugin.training.pseudo import (
    PseudoLabelled,
    Trust,
    judge_pair,
    label_pairs,
    may_infer_negatives,
    measure_trust,
)
from vcl_plugin.training.recipe import Data, Loop, Pseudo
from vcl_plugin.training.run import Run
from vcl_plugin.training.validation import calibrate

CHOICES = Pseudo(min_confidence=0.7, min_negative_confidence=0.9)
SURE = Segment(Span(0, 5), Span(3, 8), 0.8)
UNSURE = Segment(Span(10, 15), Span(3, 8), 0.4)
FAINT = Segment(Span(10, 15), Span(3, 8), 0.05)


@pytest.mark.parametrize(
    ("found", "is_copy", "boxes", "doubtful", "verdict"),
    [
        ([SURE, UNSURE], None, [[0, 3, 5, 8]], [[10, 3, 15, 8]], True),
        ([SURE, FAINT], None, [[0, 3, 5, 8]], [], True),
        ([UNSURE], None, None, [], None),
        ([FAINT], None, None, [], None),
        ([], None, None, [], None),
        ([SURE], False, [], [], False),
        ([UNSURE], True, None, [], True),
        ([SURE, UNSURE], True, [[0, 3, 5, 8]], [[10, 3, 15, 8]], True),
    ],
)
def test_what_a_teachers_answer_teaches(found, is_copy, boxes, doubtful, verdict):
    row = judge_pair(found, is_copy, CHOICES)
    assert (row["boxes"], row["doubtful"], row["is_copy"]) == (boxes, doubtful, verdict)


@pytest.mark.parametrize(
    ("is_asked", "recall", "may_deny"),
    [(False, 1.0, False), (True, None, False), (True, 0.5, False), (True, 0.97, True)],
)
def test_negatives_are_inferred_when_asked_and_from_a_teacher_of_measured_recall(
    is_asked, recall, may_deny
):
    trust = Trust((1.0, 0.0), (1.0, 0.0), recall)
    choices = replace(CHOICES, infer_negatives=is_asked)
    assert may_infer_negatives(trust, choices) == may_deny
    row = judge_pair([FAINT], None, choices, may_deny)
    assert row["is_copy"] is (False if may_deny else None)


def test_recall_of_a_teacher_is_the_share_of_known_copies_it_saw():
    box = [(0.0, 3.0, 5.0, 8.0)]
    judged = [
        JudgedPair("q", "r", found=box, truth=box, scores=[0.9]),
        JudgedPair("q", "s", found=[], truth=box, scores=[]),
        JudgedPair("q", "t", found=[], truth=[], scores=[]),
    ]
    assert measure_trust(judged, CHOICES).recall == 0.5


def test_a_teacher_is_trusted_more_where_a_copy_is_known_to_be():
    hit, miss = [(0.0, 3.0, 5.0, 8.0)], [(40.0, 40.0, 45.0, 45.0)]
    judged = [
        JudgedPair("q", "r", found=found, truth=truth, scores=[score])
        for found, truth, score in [
            *[(hit, hit, 0.3)] * 6,
            *[(miss, hit, 0.2)] * 2,
            *[(miss, [], 0.3)] * 6,
        ]
    ]
    trust = measure_trust(judged, CHOICES)
    assert calibrate(0.3, trust.copies) > calibrate(0.3, trust.any)


def test_faint_scores_of_a_short_run_are_trusted_by_what_they_turned_out_to_be_worth(monkeypatch):
    class Faint:
        name, fingerprint = "faint", "faint-1"

        def __init__(self, *_args: object, **_options: object) -> None: ...

        def localize(self, query: np.ndarray, reference: np.ndarray) -> list[Segment]:
            return [replace(SURE, score=0.08)]

    monkeypatch.setattr("vcl_plugin.training.pseudo.TransVCLLocalizer", Faint)
    bare = LabelledShare(PlantedPairs(size=4), 1e-9, "unlabelled")
    as_they_are = label_pairs(None, bare, CHOICES)
    assert {row["is_copy"] for row in as_they_are} == {None}
    calibrated = label_pairs(None, bare, CHOICES, Trust(any=(1.0, 4.0), copies=(1.0, 0.0)))
    assert [len(row["boxes"]) for row in calibrated] == [1] * 4


def test_pairs_that_teach_nothing_are_left_out_and_others_carry_their_weight():
    rows = [
        {"boxes": None, "doubtful": [], "is_copy": None},
        {"boxes": [[0, 0, 4, 4]], "doubtful": [[6, 6, 9, 9]], "is_copy": True},
    ]
    marked = PseudoLabelled(PlantedPairs(size=2), rows, weight=0.5)
    assert marked.size == 1
    pair = marked.pair(0)
    assert pair.weight == 0.5
    assert pair.boxes.tolist() == [[0, 0, 4, 4]]
    assert pair.doubtful.tolist() == [[6, 6, 9, 9]]
    assert np.array_equal(pair.query, plant(1).query)


def test_label_fraction_splits_a_set_and_hides_what_is_not_labelled():
    labelled = LabelledShare(PlantedPairs(size=200), 0.1, "labelled")
    bare = LabelledShare(PlantedPairs(size=200), 0.1, "unlabelled")
    weak = LabelledShare(PlantedPairs(size=200), 0.1, "unlabelled", is_weak=True)
    assert labelled.size + bare.size == 200
    assert 10 <= labelled.size <= 32
    assert not set(labelled.numbers) & set(bare.numbers)
    assert labelled.pair(0).boxes is not None
    assert {bare.pair(n).is_copy for n in range(9)} == {None}
    kinds = {(weak.pair(n).is_copy, weak.pair(n).boxes is None) for n in range(9)}
    assert kinds == {(True, True), (False, False)}


def test_fraction_that_leaves_no_labelled_pair_is_refused():
    with pytest.raises(Refused, match="labelled"):
        LabelledShare(PlantedPairs(size=2), 1e-6, "labelled")


def test_alternating_goes_through_a_finite_set_again_in_another_order():
    mixed = Alternating([PlantedPairs(size=3), PlantedPairs()])
    first = [mixed.pair(n).query[0, 0] for n in (0, 2, 4)]
    second = [mixed.pair(n).query[0, 0] for n in (6, 8, 10)]
    assert sorted(first) == sorted(second)
    assert np.array_equal(mixed.pair(1).query, plant(0).query)


@pytest.mark.parametrize(("share", "labelled"), [(None, 4), (0.25, 3), (0.5, 6), (1.0, 12)])
def test_labelled_pairs_have_their_share_of_the_turns_and_no_turn_is_lost(share, labelled):
    sets = [PlantedPairs(), PlantedPairs(), PlantedPairs()]
    mixed = Alternating(sets, share=share)
    turns = [mixed._take_turn(number) for number in range(12)]
    taken = [[turn for place, turn in turns if place == each] for each in range(3)]
    assert [turn for each in taken for turn in each] == [
        turn for each in taken for turn in range(len(each))
    ]
    assert len(taken[0]) == labelled
    assert len(taken[1]) - len(taken[2]) in (0, 1)


def test_folder_pairs_longer_than_the_network_are_cut_around_their_copy(tmp_path):
    folder = make_folder(tmp_path / "pairs", count=2)
    pair = FolderPairs([folder], max_frames=30).pair(0)
    assert max(len(pair.query), len(pair.reference)) <= 30
    q0, r0, q1, r1 = pair.boxes[0].round().astype(int)
    block = pair.query[q0:q1] @ pair.reference[r0:r1].T
    assert block.max(axis=1).mean() > 0.7


@pytest.mark.parametrize("supervision", ["semi", "weak"])
def test_run_without_all_labels_trains_a_teacher_first(tmp_path, supervision):
    folder = make_folder(tmp_path / "pairs", count=40)
    recipe = replace(
        RECIPE,
        data=Data(folders=(folder,), label_fraction=0.3),
        pseudo=Pseudo(teacher_steps=2, min_confidence=0.02),
        loop=Loop(steps=3, batch=2, warmup=1, supervision=supervision),
    )
    assert Run(recipe, tmp_path / "run").train().exists()
    assert (tmp_path / "run" / "teacher" / "last.safetensors").exists()
    rows = json.loads((tmp_path / "run" / "pseudo.json").read_text())
    assert len(rows) == 1
    if supervision == "weak":  # nothing known to be no copy may get a box
        weak = LabelledShare(FolderPairs([folder]), 0.3, "unlabelled", is_weak=True)
        for number, row in enumerate(rows[0]):
            assert row["is_copy"] == weak.pair(number).is_copy


def test_run_whose_teacher_is_sure_of_nothing_learns_from_labelled_pairs_alone(tmp_path, caplog):
    folder = make_folder(tmp_path / "pairs", count=20)
    recipe = replace(
        RECIPE,
        data=Data(folders=(folder,), label_fraction=0.3),
        pseudo=Pseudo(teacher_steps=2, min_confidence=1.0),
        loop=Loop(steps=2, batch=2, warmup=1, supervision="semi"),
    )
    assert Run(recipe, tmp_path / "run").train().exists()
    assert "sure of no pair" in caplog.text
