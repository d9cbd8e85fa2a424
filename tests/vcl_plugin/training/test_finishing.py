"""Finishing: a rating learns which candidates are right, from pairs that have boxes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retrieval.records import Segment, Span
from tests.vcl_plugin.training.planted_pairs import PlantedPairs, plant
from tests.vcl_plugin.training.test_run import RECIPE, make_folder
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.localize.pipeline import Pipeline
from vcl_plugin.localize.rating import FACTS
from vcl_plugin.localize.zoom import Look
from vcl_plugin.model import TransVCL, read_facts, save_transvcl
from vcl_plugin.training.findings import draw_pairs, find_pair
from vcl_plugin.training.finishing import (
    SUPPORTS,
    choose_point,
    finish_localizer,
    finish_weights,
    fit_rating,
    lift_all,
    stack_findings,
)


@pytest.fixture(autouse=True)
def _small_fit(monkeypatch):
    """The full committee takes half a minute; planted candidates need no such care."""
    monkeypatch.setattr("vcl_plugin.training.finishing.FIT_STEPS", 200)
    monkeypatch.setattr("vcl_plugin.training.finishing.COMMITTEE", 2)


class Guessing:
    """Says a copy is everywhere: the diagonal through the best cell, and a wrong place beside.

    Of equally good cells, the middle one: which of them a processor rounds up is its own affair.
    """

    name, fingerprint = "guessing", "guessing-1"

    def localize(self, query, reference):
        similarity = query @ reference.T
        best = np.argwhere(similarity > similarity.max() - 1e-3)
        q, r = best[len(best) // 2].tolist()
        low = min(q, r, 6)
        high = min(len(query) - q, len(reference) - r, 6)
        true = Segment(Span(q - low, q + high), Span(r - low, r + high), 0.5)
        return [true, Segment(Span(0, 9), Span(len(reference) - 9, len(reference)), 0.5)]

    def localize_many(self, query, references):
        return [self.localize(query, each) for each in references]


class Sure(Guessing):
    """Also says that there is a copy."""

    def look(self, query, reference):
        return Look(self.localize(query, reference), 7.0)


def collect(pairs, localizer=None):
    pipeline = Pipeline(localizer or Guessing())
    found = [find_pair(pipeline, each.query, each.reference, each.boxes) for each in pairs]
    return stack_findings(found)


def test_rating_tells_right_candidates_from_wrong_ones():
    pairs = list(draw_pairs(PlantedPairs(), RECIPE, range(30)))
    facts, ious = collect(pairs)
    assert facts.shape[1] == len(FACTS)
    rating = fit_rating(facts, ious)
    assert rating is not None
    scores = rating.rate(facts)
    assert scores[ious > 0.3].mean() > 0.9
    assert scores[ious < 0.1].mean() < 0.1
    assert rating == fit_rating(facts, ious)  # the same candidates, the same rating


def test_nothing_to_tell_apart_gives_no_rating():
    facts = np.zeros((5, len(FACTS)))
    assert fit_rating(facts, np.zeros(5)) is None
    assert fit_rating(facts[:0], np.zeros(0)) is None


def test_any_method_can_be_finished(tmp_path):
    folder = Folder(make_folder(tmp_path / "val", count=9))
    pairs = list(draw_pairs(PlantedPairs(), RECIPE, range(30)))
    finished = finish_localizer(Pipeline(Guessing()), pairs, folder)
    assert finished.validation.f_score > 0.9
    assert finished.validation.far == 0
    assert finished.calibration_error < 0.2


def rate_planted(folder: Folder, scores: dict[int, float]) -> list:
    """Every pair with one candidate: the true box, or a wrong one where there is none."""
    rated = []
    for pair in folder.pairs:
        box = pair.truth[0] if pair.truth else (0.0, 0.0, 9.0, 9.0)
        score = scores.get(int(pair.query_id[1:]), 0.1)
        rated.append((pair, [Segment(Span(box[0], box[2]), Span(box[1], box[3]), score)]))
    return rated


def test_threshold_gives_up_recall_for_the_false_alarms_that_are_allowed(tmp_path):
    folder = Folder(make_folder(tmp_path / "val", count=9))  # 2, 5 and 8 are no copies
    sure = dict.fromkeys((0, 1, 3, 4), 0.9)
    rated = rate_planted(folder, {**sure, 6: 0.4, 7: 0.4, 2: 0.6, 5: 0.01, 8: 0.01})
    _, low, free = choose_point(rated, [0.0] * 9)
    _, high, strict = choose_point(rated, [0.0] * 9, max_far=0.02)
    assert low <= 0.4
    assert (free.frr, free.far) == (0, pytest.approx(1 / 3))
    assert 0.6 < high <= 0.9
    assert (strict.frr, strict.far) == (pytest.approx(1 / 3), 0)


def test_what_is_known_of_the_pair_is_a_fact_of_each_candidate():
    pairs = [plant(0), plant(1, is_copy=False)]
    known, _ = collect(pairs, Sure())
    unknown, _ = collect(pairs)
    place = FACTS.index("video")
    assert (known[:, place] == 7).all()
    assert (unknown[:, place] == 0).all()
    np.testing.assert_array_equal(np.delete(known, place, 1), np.delete(unknown, place, 1))


def test_what_is_known_of_the_pair_lifts_copies_and_pulls_nothing_down(tmp_path):
    folder = Folder(make_folder(tmp_path / "val", count=9))
    rated = rate_planted(folder, dict.fromkeys(range(9), 0.5))
    logits = [4.0 if pair.truth else -4.0 for pair, _ in rated]
    support, threshold, summary = choose_point(rated, logits, max_far=0.02)
    assert support.weight > 0
    assert threshold > 0.5
    assert (summary.frr, summary.far) == (0, 0)
    for (_, (before,)), (_, (after,)), logit in zip(
        rated, lift_all(rated, logits, support), logits, strict=True
    ):
        assert after.score > before.score if logit > 0 else after == before


def test_what_is_known_of_the_pair_at_most_triples_the_odds():
    for support in SUPPORTS:
        for score in (0.01, 0.5, 0.9):
            segment = Segment(Span(0, 5), Span(0, 5), score)
            lifted = support.lift(segment, video_logit=50.0).score
            odds = lifted / (1 - lifted) / (score / (1 - score))
            assert odds <= 3.01
            assert (odds > 2.9) == (support.weight > 0)


def test_calibrated_rating_moves_its_logit():
    facts, ious = collect(draw_pairs(PlantedPairs(), RECIPE, range(20)))
    rating = fit_rating(facts, ious)
    before, after = rating.rate(facts), rating.calibrated(0.5, 1.0).rate(facts)
    logits = np.log(before / (1 - before))
    assert np.allclose(np.log(after / (1 - after)), 0.5 * logits + 1.0)


def test_pairs_without_boxes_do_not_teach_the_rating():
    class Bare(PlantedPairs):
        def pair(self, number):
            from dataclasses import replace

            return replace(super().pair(number), boxes=None)

    assert list(draw_pairs(Bare(), RECIPE, range(5))) == []


def test_two_processes_find_what_one_finds_and_the_file_says_on_what_it_rests(tmp_path):
    weights = tmp_path / "weights.safetensors"
    torch.manual_seed(0)
    save_transvcl(TransVCL(RECIPE.network), weights, {"name": "untrained"})
    folder = Folder(make_folder(tmp_path / "val", count=4))
    (folder.path / "recipe.json").write_text('{"descriptor": "pixels-1"}')
    steps = []
    for processes in (1, 2):
        finish_weights(
            weights, tmp_path / f"{processes}.safetensors", PlantedPairs(), RECIPE, folder,
            count=4, processes=processes, on_pairs=lambda done, total: steps.append((done, total)),
        )  # fmt: skip
    alone, together = (read_facts(tmp_path / f"{each}.safetensors") for each in (1, 2))
    assert alone == together
    assert alone["descriptor"] == "pixels-1"
    assert alone["finishing"]["pairs"] == 4
    assert alone["finishing"]["validation_pairs"] == 4
    assert steps[-1] == (9, 9), "four to learn from, four to judge by, one looked at closely"
