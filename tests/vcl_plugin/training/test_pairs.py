"""Made-up pairs: the same under the same number, and stiller where a fixed camera is wanted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from vcl_plugin.evaluation.composition import Composed, Composer, Geometry, View
from vcl_plugin.evaluation.sources import Source, make_cards
from vcl_plugin.training.material import Material
from vcl_plugin.training.pairs import STILLNESS, MadePairs


class RandomBank:
    """Every view a vector: what a source shows, under its edit, and what is new in that second."""

    def lookup(self, views: Sequence[View]) -> np.ndarray:
        def draw(*key: object) -> np.ndarray:
            seed = np.frombuffer(repr(key).encode(), np.uint8)
            return np.random.default_rng(seed).standard_normal(256)

        rows = [
            draw(each.source, each.take)
            + draw(each.source, each.half // 2)
            + 0.3 * draw(each.source, each.edit)
            for each in views
        ]
        vectors = np.array(rows, np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def material() -> Material:
    photos = [Source(f"p{number}", "photo", 10, f"p{number}") for number in range(40)]
    films = [Source(f"f{number}", "video", 30, f"f{number}") for number in range(2)]
    return Material([*photos, *films, *make_cards()], 2, RandomBank())  # type: ignore[arg-type]


ROW = Geometry(60, 80, ((10.0, 20.0, 40.0, 50.0),), "", "train")


def spread(frames: np.ndarray) -> float:
    return float(np.linalg.norm(frames - frames.mean(axis=0), axis=1).mean())


def test_stillness_draws_a_scene_together_and_leaves_unit_length(material: Material):
    views = [View("f0", 0, half) for half in range(0, 40, 2)]
    lively, still = material.lookup(views), material.lookup(views, {"f0": 0.8})
    assert spread(still) < 0.45 * spread(lively)
    np.testing.assert_allclose(np.linalg.norm(still, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(material.lookup(views, {"f1": 0.8}), lively, atol=1e-6)


def test_copy_of_a_still_scene_stays_nearest_to_its_own_seconds(material: Material):
    edit = next(
        view.edit for view in material._places if view.source == "f0" and view.edit != "none"
    )
    film = material.lookup([View("f0", 0, half) for half in range(0, 60, 2)], {"f0": 0.7})
    copy = material.lookup([View("f0", 0, half, edit) for half in range(20, 50, 2)], {"f0": 0.7})
    similarity = copy @ film.T
    assert similarity.min() > 0.6, "all seconds look alike"
    np.testing.assert_array_equal(similarity.argmax(axis=1), np.arange(10, 25))


def test_pairs_are_the_same_under_the_same_number_and_stiller_when_asked_to_be(material: Material):
    lively = MadePairs([ROW], material, seed=3, copy_share=1.0)
    still = MadePairs([ROW], material, seed=3, copy_share=1.0, still_share=1.0)
    for number in range(3):
        one, again, other = lively.pair(number), lively.pair(number), still.pair(number)
        np.testing.assert_array_equal(one.query, again.query)
        np.testing.assert_array_equal(one.boxes, other.boxes)
        assert not np.array_equal(one.query, other.query)
        # Within a shot neighbouring seconds come closer to each other.
        nearness = [
            float((each.reference[:-1] * each.reference[1:]).sum()) for each in (one, other)
        ]
        assert nearness[1] > nearness[0]
    assert 0 < STILLNESS[0] < STILLNESS[1] < 1


def test_only_the_kinds_of_negatives_that_are_named_are_drawn(
    material: Material, monkeypatch: pytest.MonkeyPatch
):
    drawn = []
    compose = Composer.compose_negative

    def watch(self: Composer, geometry: Geometry, kind: str) -> Composed:
        drawn.append(kind)
        return compose(self, geometry, kind)

    monkeypatch.setattr(Composer, "compose_negative", watch)
    pairs = MadePairs([ROW], material, copy_share=0.0, negatives=("takes", "cards", "takes"))
    for number in range(30):
        pairs.pair(number)
    assert set(drawn) == {"takes", "cards"}
    assert drawn.count("takes") > drawn.count("cards")
