"""The pipeline: its steps in a row, and all of them where the weights bring a rating."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from retrieval.errors import BadDescriptors, MissingWeights, UnknownPlugin
from retrieval.plugins import Localizer, load_localizer
from retrieval.records import Segment, Span
from tests.vcl_plugin.localize.test_ends import planted, unit, walk
from tests.vcl_plugin.localize.test_rating import SEGMENT, by_agreement, same_scene
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.localize.pipeline import Pipeline, load_pipeline
from vcl_plugin.localize.rating import choose_segments
from vcl_plugin.localize.weights import SHIPPED_WEIGHTS, open_weights
from vcl_plugin.localize.zoom import Zoom
from vcl_plugin.model import SMALL, TransVCL, read_facts, save_transvcl
from vcl_plugin.model.fast.frozen import FrozenTransVCL
from vcl_plugin.training.findings import find_pair
from vcl_plugin.training.finishing import rate_finding

FACTS = {
    "candidate_score": 0.0,  # of an untrained network: everything
    "rating": by_agreement().as_dict(),
    "min_rating": 0.6,
    "zoom": {"seconds": 60, "overlap": 20, "factor": 1.3, "max_tiles": 100},
}


class Saying:
    """A localizer that says the same of every pair."""

    name, fingerprint = "saying", "saying-1"

    def __init__(self, *segments):
        self.segments = list(segments)

    def localize(self, query, reference):
        return self.segments

    def localize_many(self, query, references):
        return [self.segments for _ in references]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    save_transvcl(TransVCL(replace(SMALL, map_size=32)), path, FACTS)
    return path


def test_rating_decides_what_is_kept(weights):
    query, reference, _ = planted()
    localizer = load_pipeline(weights)
    assert isinstance(localizer, Localizer)
    found = localizer.localize(query, reference)
    assert all(each.score >= 0.6 for each in found)
    assert load_pipeline(weights, min_score=0.999).localize(query, reference) == []
    assert localizer.localize_many(query, [reference]) == [found]


def test_scores_are_those_that_finishing_fitted_and_chose_its_threshold_by():
    model, facts = open_weights(SHIPPED_WEIGHTS)
    assert facts.calibration != (1.0, 0.0), "of the detector alone; the rating knows none"
    assert facts.finish is not None
    query, reference, _ = planted()
    detector = TransVCLLocalizer(model, min_score=facts.finish.candidate_score, cascade="off")
    finding = find_pair(Pipeline(detector, zoom=facts.finish.zoom), query, reference, None)
    rated = rate_finding(finding, facts.finish.rating)
    support = facts.finish.support
    expected = choose_segments([support.lift(each, finding.logit) for each in rated])
    assert expected
    assert load_pipeline(min_score=0.0).localize(query, reference) == expected


def test_threshold_is_part_of_the_fingerprint(weights):
    one, other = load_pipeline(weights), load_pipeline(weights, min_score=0.7)
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint.startswith("transvcl-")


def test_the_network_matches_every_pair_of_tiles_once(weights, monkeypatch):
    matched = []
    real = FrozenTransVCL.match

    def match(self, query, reference):
        matched.append((query.frames, reference.frames))
        return real(self, query, reference)

    monkeypatch.setattr(FrozenTransVCL, "match", match)
    assert load_pipeline(weights, min_score=0.0).localize(walk(50, 1), walk(40, 2))
    assert matched == [(50, 40)]


def test_weights_that_another_version_finished_are_refused_with_the_way_out(tmp_path):
    path = tmp_path / "older.safetensors"
    rating = {**FACTS["rating"], "facts": [*FACTS["rating"]["facts"][1:], "colour"]}
    save_transvcl(TransVCL(replace(SMALL, map_size=32)), path, {**FACTS, "rating": rating})
    with pytest.raises(MissingWeights, match=r"facts colour, confidence.*vcl finish"):
        load_pipeline(path)
    assert isinstance(load_localizer("transvcl-detector", path), TransVCLLocalizer)


def test_transvcl_is_finished_where_the_weights_are_and_the_detector_where_not(weights, tmp_path):
    assert isinstance(load_localizer("transvcl", weights, min_score=0.7), Pipeline)
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
        load_pipeline(weights).localize_many(np.ones((5, 256)), [np.ones((5, 3))])


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
    (found,) = load_pipeline().localize(query, reference)
    assert max(abs(a - b) for a, b in zip(found.box, truth, strict=True)) <= 2
    assert found.is_reversed == is_reversed


def test_shipped_weights_find_nothing_between_strangers():
    assert load_pipeline().localize(walk(90, 11), walk(140, 12)) == []


def test_a_copy_across_frame_1200_of_forty_minutes_is_one_segment():
    query, reference = walk(2400, 1), walk(2400, 2)
    query[1160:1250] = reference[1155:1245]
    query = unit(query + 0.3 * unit(np.random.default_rng(0).standard_normal(query.shape)))
    (found,) = load_pipeline().localize(query, reference)
    truth = (1160, 1155, 1250, 1245)
    assert max(abs(a - b) for a, b in zip(found.box, truth, strict=True)) <= 2


def test_rated_copy_stays_and_rated_scene_goes():
    query, reference, truth = planted()
    loose = Segment(Span(24, 57), Span(34, 67), 0.2)
    (found,) = Pipeline(Saying(loose), by_agreement(), 0.5).localize(query, reference)
    assert found.score > 0.9
    assert max(abs(a - b) for a, b in zip(found.box, truth, strict=True)) <= 1
    assert Pipeline(Saying(SEGMENT), by_agreement(), 0.5).localize(*same_scene()) == []
    assert Pipeline(Saying(), by_agreement()).localize(query, reference) == []


def test_long_pair_is_judged_around_each_candidate(monkeypatch):
    query, reference, _ = planted()
    loose = Segment(Span(24, 57), Span(34, 67), 0.2)
    pipeline = Pipeline(Saying(loose), by_agreement())
    whole = pipeline.localize(query, reference)
    monkeypatch.setattr("vcl_plugin.localize.maps.MAX_CELLS", 100)
    monkeypatch.setattr("vcl_plugin.localize.maps.SURROUNDINGS", 20)
    (found,) = pipeline.localize(query, reference)
    assert found.box == whole[0].box


def test_pieces_that_tiles_cut_are_one_segment():
    query, reference, truth = planted()

    class Tiled:
        """Finds nothing in the whole pair, and in a tile the piece of the copy inside it."""

        name, fingerprint = "tiled", "tiled-1"

        def localize(self, query, reference):
            similarity = query @ reference.T
            if len(query) > 30:
                return []
            rows, columns = np.nonzero(similarity > 0.75)
            if len(rows) < 8:
                return []
            return [
                Segment(
                    Span(float(rows.min()), float(rows.max() + 1)),
                    Span(float(columns.min()), float(columns.max() + 1)),
                    0.4,
                )
            ]

        def localize_many(self, query, references):
            return [self.localize(query, each) for each in references]

    pipeline = Pipeline(Tiled(), by_agreement(), 0.5, Zoom(30, 10))
    (found,) = pipeline.localize(query, reference)
    assert max(abs(a - b) for a, b in zip(found.box, truth, strict=True)) <= 1
    assert pipeline.localize_many(query, [reference]) == [[found]]
    other = Pipeline(Tiled(), by_agreement(), 0.6, Zoom(30, 10))
    assert pipeline.fingerprint != other.fingerprint
