"""The descriptor's fitting: what judges stays apart from what fits, and a fit finds the copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from retrieval.describe.fitting import fit as fitting
from retrieval.describe.fitting.edits import EDITS, HELD_OUT, draw_strength
from retrieval.describe.fitting.fit import Contest, fit_head, fit_tail, turn_head
from retrieval.describe.fitting.material import (
    Source,
    Split,
    find_no_contest,
    gather_sources,
    same_film,
    split_of,
)
from retrieval.describe.fitting.samples import Samples, draw_samples
from retrieval.describe.fitting.tail import Tail
from retrieval.describe.lite0 import build_graph, build_trunk, find_backbone, read_backbone
from retrieval.errors import NotFound
from vcl_plugin.demo.footage import render_reference
from vcl_plugin.demo.scenery import SCENES


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
    for number in range(30):
        picture(number).save(tmp_path / f"{number}.jpg")
    splits: tuple[Split, ...] = ("train", "val", "test")
    names = [{each.name for each in gather_sources(tmp_path, [], split)} for split in splits]
    assert [len(each) for each in names] == [16, 4, 10]
    assert len(set.union(*names)) == 30


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no picture of the split test"):
        gather_sources(tmp_path, [], "test")


def test_videos_of_one_group_are_one_film_on_one_side(tmp_path: Path) -> None:
    for name in ("large", "small"):
        render_reference(tmp_path / f"{name}.mp4", seed=1, seconds=2, fps=2, size=(64, 48))
    (tmp_path / "MANIFEST.tsv").write_text("large.mp4\tone\nsmall.mp4\tone\n")
    sources = gather_sources(None, [tmp_path], split_of("one"))
    assert len(sources) == 4
    assert same_film(sources).all()


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


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def planted_features() -> tuple[np.ndarray, Contest]:
    """300 originals and four copies of each; edits shake the last hundred features far more than
    originals differ anywhere."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((300, 1, 400)).astype(np.float32).repeat(5, axis=1)
    features[:, 1:, 300:] += 12 * rng.standard_normal((300, 4, 100)).astype(np.float32)
    shown = np.full((300, 5, 3), -1, np.int32)
    shown[:, :, 0] = np.arange(300)[:, None]
    return features, Contest(shown, np.eye(300, dtype=bool))


def test_a_head_ignores_the_directions_that_edits_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "HEAD_BATCH", 64)
    features, contest = planted_features()
    head = fit_head(features, contest, seed=0, steps=60)
    assert head["weight"].shape == (256, 400)

    def found(rows: np.ndarray) -> float:
        units = unit(rows)
        best = np.einsum("ncd,md->ncm", units[:, 1:], units[:, 0]).argmax(axis=2)
        return float((best == np.arange(300)[:, None]).mean())

    assert found(features) < 0.9
    assert found(features @ head["weight"].T + head["bias"]) > 0.95


def test_a_turned_head_keeps_every_distance_and_comes_near_the_other() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((400, 60)).astype(np.float32)
    weight = rng.standard_normal((20, 60)).astype(np.float32)
    other, _ = np.linalg.qr(rng.standard_normal((20, 20)))
    head = {"weight": weight, "bias": np.zeros(20, np.float32)}
    turned = turn_head(head, features, unit(features @ (other @ weight).T).astype(np.float32))
    np.testing.assert_allclose(turned["weight"], other @ weight, atol=1e-3)


def test_a_copy_is_never_blamed_for_what_it_shows() -> None:
    shown = np.array(
        [
            [
                [0, -1, -1],
                [0, -1, 2],
            ],  # an original of source 0; in its copy source 2 shines through
            [[1, -1, -1], [1, -1, -1]],
            [[2, 3, -1], [2, 3, -1]],  # two pictures in one
            [[4, -1, -1], [4, -1, -1]],  # the second after source 1
        ],
        np.int32,
    )
    alike = np.eye(5, dtype=bool)
    alike[1, 4] = alike[4, 1] = True
    excused = Contest(shown, alike).excuse(torch.tensor([0, 1]))
    assert excused.tolist() == [[True, False, True, False], [False, True, False, True]]


@pytest.fixture(scope="module")
def samples() -> Samples:
    sources = [Source(str(number), 0.0, picture(number), False) for number in range(6)]
    return draw_samples(sources, originals=45, copies=3, seed=0)


def test_samples_are_originals_and_copies_that_know_what_they_show(samples: Samples) -> None:
    assert samples.maps.shape == (45, 4, 192, 7, 7)
    assert samples.middle.shape == (45, 4, 672)
    assert (samples.shown[:, :, 0] == samples.shown[:, :1, 0]).all(), "a copy shows its original"
    assert (samples.shown[:, 0, 2] == -1).all()
    assert (samples.shown[:, 1:, 2] >= 0).all(), "and may show another picture"
    assert 0 < (samples.shown[:, 0, 1] >= 0).mean() < 0.6, "some originals show two"


def test_samples_may_have_any_number_of_copies() -> None:
    sources = [Source(str(number), 0.0, picture(number), False) for number in range(3)]
    assert draw_samples(sources, originals=2, copies=2, seed=0).shown.shape == (2, 3, 3)


def test_samples_come_back_from_their_file(samples: Samples, tmp_path: Path) -> None:
    samples.save(tmp_path / "samples.npz")
    again = Samples.load(tmp_path / "samples.npz")
    assert np.array_equal(again.maps, samples.maps)
    assert len(again.first(3)) == 3


def test_a_tail_as_it_came_gives_the_numbers_of_the_graph() -> None:
    backbone = read_backbone(find_backbone())
    rng = np.random.default_rng(0)
    head = {
        "weight": rng.standard_normal((256, 1952)).astype(np.float32),
        "bias": rng.standard_normal(256).astype(np.float32),
    }
    pictures = np.stack([np.asarray(picture(number, (224, 224))) for number in range(3)])
    maps, middle = run_graph(build_trunk(backbone), pictures)
    tail = Tail(backbone, 256)
    tail.set_head(head)
    with torch.no_grad():
        found = tail(torch.from_numpy(maps), torch.from_numpy(middle)).numpy()
    np.testing.assert_allclose(
        found, run_graph(build_graph(backbone, head), pictures)[0], atol=1e-5
    )


def run_graph(graph: bytes, pictures: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(graph).run(None, {"pictures": pictures})


def test_a_fitted_tail_finds_more_copies_and_its_weights_run_in_the_graph(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "BATCH", 15)
    backbone = read_backbone(find_backbone())
    tail = Tail(backbone, 256)
    rng = np.random.default_rng(0)
    tail.set_head(
        {
            "weight": rng.standard_normal((256, 1952)).astype(np.float32),
            "bias": np.zeros(256, np.float32),
        }
    )
    contest = Contest(samples.shown, np.eye(6, dtype=bool))

    def closeness() -> float:
        with torch.no_grad():
            found = tail(
                torch.from_numpy(samples.maps).float().flatten(0, 1),
                torch.from_numpy(samples.middle).float().flatten(0, 1),
            ).view(45, 4, 256)
        own = (found[:, :1] * found[:, 1:]).sum(dim=2).mean()
        return float(own - (found[:, 0] @ found[:, 0].T).mean())

    before = closeness()
    fit_tail(tail, samples, contest, passes=4, seed=0)
    assert closeness() > before + 0.05
    weights = tail.weights()
    pictures = np.stack([np.asarray(picture(number, (224, 224))) for number in range(3)])
    maps, middle = run_graph(build_trunk(backbone), pictures)
    with torch.no_grad():
        found = tail(torch.from_numpy(maps), torch.from_numpy(middle)).numpy()
    shipped = run_graph(build_graph({**backbone, **weights}, weights), pictures)[0]
    np.testing.assert_allclose(found, shipped, atol=1e-5)
