"""Facts of a weights file: one record, read from files of any age and written as before."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from retrieval.errors import MissingWeights
from tests.vcl_plugin.localize.test_rating import by_agreement
from vcl_plugin.localize.rating import Support
from vcl_plugin.localize.weights import (
    SHIPPED_WEIGHTS,
    Cascade,
    Finish,
    WeightsFacts,
    open_weights,
)
from vcl_plugin.localize.zoom import Zoom
from vcl_plugin.model import SMALL, TransVCL, read_facts, save_transvcl


def test_facts_survive_json_and_come_back_flat():
    finish = Finish(0.02, by_agreement(), 0.7, Zoom(60, 20), Support(0.2, -1.0, 0.7))
    facts = WeightsFacts(
        0.3, (1.1, 0.2), Cascade(-3.0, 0.01), finish, "", "lite0-1", {"hours": 2.5}
    )
    stored = json.loads(json.dumps(facts.as_dict()))
    assert WeightsFacts.from_dict(stored) == facts
    assert stored["hours"] == 2.5
    assert stored["zoom"]["seconds"] == 60


def test_the_shipped_file_is_read_and_would_be_written_as_it_is():
    stored = read_facts(SHIPPED_WEIGHTS)
    facts = WeightsFacts.from_dict(stored)
    assert json.loads(json.dumps(facts.as_dict())) == stored
    assert facts.finish is not None
    assert facts.history["pairs"] > 0


def test_a_file_that_says_nothing_has_the_defaults(tmp_path):
    path = tmp_path / "plain.safetensors"
    save_transvcl(TransVCL(replace(SMALL, map_size=32)), path)
    assert open_weights(path)[1] == WeightsFacts()


def test_facts_of_before_support_and_zoom_are_read():
    rating = by_agreement().as_dict()
    older = {"candidate_score": 0.02, "rating": rating, "min_rating": 0.6, "calibration": [2.0, 1]}
    facts = WeightsFacts.from_dict(older)
    assert facts.finish == Finish(0.02, by_agreement(), 0.6)
    assert facts.calibration == (2.0, 1)


def test_a_rating_of_another_version_is_named_and_the_rest_is_of_use():
    rating = {**by_agreement().as_dict(), "revision": 1}
    older = {"candidate_score": 0.02, "rating": rating, "min_rating": 0.6, "min_score": 0.4}
    facts = WeightsFacts.from_dict(older)
    assert facts.finish is None
    assert "revision 1" in facts.refusal
    assert facts.min_score == 0.4


@pytest.mark.parametrize(
    "facts",
    [
        {"calibration": 3},
        {"cascade": {"max_logit": 1.0, "colour": 2}},
        {"rating": {"facts": ["length"]}},
        {"rating": by_agreement().as_dict()},
    ],
)
def test_facts_that_make_no_sense_get_a_sentence(tmp_path, facts):
    path = tmp_path / "strange.safetensors"
    save_transvcl(TransVCL(replace(SMALL, map_size=32)), path, facts)
    with pytest.raises(MissingWeights, match=r"facts this version cannot read"):
        open_weights(path)


def test_weights_that_are_not_there_get_a_sentence(tmp_path):
    with pytest.raises(MissingWeights, match="absent"):
        open_weights(tmp_path / "absent.safetensors")
