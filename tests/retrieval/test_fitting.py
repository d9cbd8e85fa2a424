"""The head's fitting: what judges stays apart from what fits, and a fit finds the copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retrieval import fitting
from retrieval.edits import EDITS, HELD_OUT, draw_strength
from retrieval.errors import NotFound
from retrieval.fitting import describe_edits, fit_head
from retrieval.material import Source, find_no_contest, gather_sources
from vcl_plugin.scenery import SCENES


def picture(seed: int, size: tuple[int, int] = (160, 120)) -> Image.Image:
    return Image.fromarray(SCENES[seed % len(SCENES)](np.random.default_rng(seed), size))


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_every_edit_gives_a_picture_and_repeats_itself(name: str, strength: float) -> None:
    original, other = picture(1), picture(2, (90, 140))
    first = EDITS[name](original, strength, np.random.default_rng(0), other)
    again = EDITS[name](original, strength, np.random.default_rng(0), other)
    assert first.mode == "RGB"
    assert min(first.size) > 40
    assert np.array_equal(np.asarray(first), np.asarray(again))
    assert np.array_equal(np.asarray(original), np.asarray(picture(1))), "the original is kept"


def test_fitting_and_judging_share_no_strength() -> None:
    rng = np.random.default_rng(0)
    for is_judge in (True, False):
        drawn = np.array([draw_strength(rng, held_out=is_judge) for _ in range(500)])
        inside = np.zeros(500, bool)
        for low, high in HELD_OUT:
            inside |= (drawn >= low) & (drawn <= high)
        assert (inside == is_judge).all()


def test_fitting_and_judging_share_no_picture(tmp_path: Path) -> None:
    for number in range(12):
        picture(number).save(tmp_path / f"{number}.jpg")
    fitted = {each.name for each in gather_sources(tmp_path, [], held_out=False)}
    judges = {each.name for each in gather_sources(tmp_path, [], held_out=True)}
    assert len(fitted) == 9
    assert len(judges) == 3
    assert not fitted & judges


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no picture"):
        gather_sources(tmp_path, [], held_out=True)


def test_seconds_that_look_the_same_are_no_contest() -> None:
    still, other = picture(1), picture(2)
    sources = [
        Source("a", 0.5, still, True),
        Source("a", 9.5, still, True),
        Source("a", 10.5, other, True),
        Source("b", 0.5, still, True),
    ]
    found = find_no_contest(sources)
    assert found[0, 1], "the same picture in the same film"
    assert found[1, 2], "the next second"
    assert not found[0, 2]
    assert not found[0, 3], "another film is a contest even if it looks the same"
    assert not found.diagonal().any()


def test_a_fit_ignores_the_directions_that_edits_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "BATCH", 64)
    rng = np.random.default_rng(0)
    count, copies_each, features = 300, 4, 400
    originals = rng.standard_normal((count, features)).astype(np.float32)
    copies = originals.repeat(copies_each, axis=0)
    # Edits shake the last hundred features far more than originals differ anywhere.
    copies[:, 300:] += 12 * rng.standard_normal((len(copies), 100)).astype(np.float32)
    owners = np.arange(count).repeat(copies_each)
    weight, bias = fit_head(originals, copies, owners, np.zeros((count, count), bool), 60, 0)
    assert weight.shape == (256, features)

    def found(embed_copies: np.ndarray, embed_originals: np.ndarray) -> float:
        units = [
            each / np.linalg.norm(each, axis=1, keepdims=True)
            for each in (embed_copies, embed_originals)
        ]
        return float(((units[0] @ units[1].T).argmax(axis=1) == owners).mean())

    before = found(copies, originals)
    after = found(copies @ weight.T + bias, originals @ weight.T + bias)
    assert before < 0.9
    assert after > 0.95


def test_every_copy_knows_its_original() -> None:
    sources = [Source(str(number), 0.0, picture(number), False) for number in range(3)]
    originals, copies, owners = describe_edits(sources, edits=2, seed=0)
    assert originals.shape == (3, 1952)
    assert copies.shape == (6, 1952)
    assert owners.tolist() == [0, 0, 1, 1, 2, 2]
