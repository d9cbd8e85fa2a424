"""The finished localizer: weights with a rating are used whole, others are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from retrieval.errors import BadDescriptors, MissingWeights, UnknownPlugin
from retrieval.plugins import Localizer, load_localizer
from tests.vcl_plugin.localize.test_ends import planted, unit, walk
from tests.vcl_plugin.localize.test_rating import by_agreement
from vcl_plugin.localize.detection import SHIPPED_WEIGHTS, TransVCLLocalizer
from vcl_plugin.localize.finished import FinishedTransVCL, VideoLogit
from vcl_plugin.localize.rating import Rating, Support, choose_segments
from vcl_plugin.localize.zoom import Zoom
from vcl_plugin.model import SMALL, TransVCL, load_transvcl, read_facts, save_transvcl
from vcl_plugin.training.findings import Finder
from vcl_plugin.training.finishing import rate_finding

FACTS = {
    "candidate_score": 0.0,  # of an untrained network: everything
    "rating": by_agreement().as_dict(),
    "min_rating": 0.6,
    "zoom": {"seconds": 60, "overlap": 20, "factor": 1.3, "max_tiles": 100},
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    save_transvcl(TransVCL(replace(SMALL, map_size=32)), path, FACTS)
    return path


def test_rating_decides_what_is_kept(weights):
    query, reference, _ = planted()
    localizer = FinishedTransVCL(weights)
    assert isinstance(localizer, Localizer)
    found = localizer.localize(query, reference)
    assert all(each.score >= 0.6 for each in found)
    assert FinishedTransVCL(weights, min_score=0.999).localize(query, reference) == []
    assert localizer.localize_many(query, [reference]) == [found]


def test_scores_are_those_that_finishing_fitted_and_chose_its_threshold_by():
    facts = read_facts(SHIPPED_WEIGHTS)
    assert facts["calibration"] != [1.0, 0.0], "of the detector alone; the rating knows none"
    query, reference, _ = planted()
    detector = TransVCLLocalizer(
        load_transvcl(SHIPPED_WEIGHTS), min_score=facts["candidate_score"], cascade="off"
    )
    finding = Finder(detector, Zoom(**facts["zoom"]), VideoLogit(detector)).find(
        query, reference, None
    )
    support = Support(**facts["support"])
    rated = rate_finding(finding, Rating.from_dict(facts["rating"]))
    expected = choose_segments([support.lift(each, finding.logit) for each in rated])
    assert expected
    assert FinishedTransVCL(min_score=0.0).localize(query, reference) == expected


def test_threshold_is_part_of_the_fingerprint(weights):
    one, other = FinishedTransVCL(weights), FinishedTransVCL(weights, min_score=0.7)
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint.startswith("transvcl-")


def test_weights_that_another_version_finished_are_refused_with_the_way_out(tmp_path):
    path = tmp_path / "older.safetensors"
    rating = {**FACTS["rating"], "facts": [*FACTS["rating"]["facts"][1:], "colour"]}
    save_transvcl(TransVCL(replace(SMALL, map_size=32)), path, {**FACTS, "rating": rating})
    with pytest.raises(MissingWeights, match=r"facts colour, confidence.*vcl finish"):
        FinishedTransVCL(path)


def test_weights_without_a_rating_are_refused(tmp_path):
    path = tmp_path / "plain.safetensors"
    save_transvcl(TransVCL(replace(SMALL, map_size=32)), path)
    with pytest.raises(MissingWeights, match="brings no rating"):
        FinishedTransVCL(path)


def test_transvcl_is_finished_where_the_weights_are_and_the_detector_where_not(weights, tmp_path):
    assert isinstance(load_localizer("transvcl"), FinishedTransVCL)
    assert isinstance(load_localizer("transvcl", weights, min_score=0.7), FinishedTransVCL)
    plain = tmp_path / "plain.safetensors"
    save_transvcl(TransVCL(replace(SMALL, map_size=32)), plain)
    assert isinstance(load_localizer("transvcl", plain), TransVCLLocalizer)


def test_weights_that_are_not_there_and_options_nobody_takes_get_a_sentence(tmp_path):
    with pytest.raises(MissingWeights, match="absent"):
        load_localizer("transvcl", tmp_path / "absent.safetensors")
    with pytest.raises(UnknownPlugin, match="does not take that"):
        load_localizer("transvcl", colour="red")


def test_arrays_are_checked_before_any_work(weights):
    with pytest.raises(BadDescriptors):
        FinishedTransVCL(weights).localize_many(np.ones((5, 256)), [np.ones((5, 3))])


def test_shipped_weights_are_small_and_tell_where_they_come_from():
    assert SHIPPED_WEIGHTS.stat().st_size <= 25_000_000
    facts = read_facts(SHIPPED_WEIGHTS)
    assert facts["descriptor"].startswith("lite0-")
    assert facts["validation"]["f_score"] > 0.88
    assert facts["validation"]["far"] < 0.02
    assert facts["calibration_error"] < 0.08


@pytest.mark.parametrize("is_reversed", [False, True])
def test_shipped_weights_find_a_planted_copy_to_the_second(is_reversed):
    query, reference, truth = planted(is_reversed=is_reversed)
    (found,) = FinishedTransVCL().localize(query, reference)
    assert max(abs(a - b) for a, b in zip(found.box, truth, strict=True)) <= 2
    assert found.is_reversed == is_reversed


def test_shipped_weights_find_nothing_between_strangers():
    assert FinishedTransVCL().localize(walk(90, 11), walk(140, 12)) == []


def test_a_copy_across_frame_1200_of_forty_minutes_is_one_segment():
    query, reference = walk(2400, 1), walk(2400, 2)
    query[1160:1250] = reference[1155:1245]
    query = unit(query + 0.3 * unit(np.random.default_rng(0).standard_normal(query.shape)))
    (found,) = FinishedTransVCL().localize(query, reference)
    truth = (1160, 1155, 1250, 1245)
    assert max(abs(a - b) for a, b in zip(found.box, truth, strict=True)) <= 2
