"""The descriptor's fitting: what judges stays apart from what fits, and a fit finds the copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from retrieval.describe.fitting import batches as batch_module
from retrieval.describe.fitting.batches import Batch, Painter, stream_batches
from retrieval.describe.fitting.edits import EDITS, HELD_OUT, NEVER_FITTED, draw_strength
from retrieval.describe.fitting.fit import Fit, fit, make_network, save_weights, whiten
from retrieval.describe.fitting.losses import Contest, compare
from retrieval.describe.fitting.material import (
    Source,
    Split,
    find_no_contest,
    gather_sources,
    same_film,
    split_of,
)
from retrieval.describe.fitting.network import Network
from retrieval.describe.lite0 import build_first_blocks, build_graph, find_backbone, read_backbone
from retrieval.errors import NotFound
from vcl_plugin.demo.footage import render_reference
from vcl_plugin.demo.scenery import SCENES


def picture(seed: int, size: tuple[int, int] = (160, 120)) -> Image.Image:
    return Image.fromarray(SCENES[seed % len(SCENES)](np.random.default_rng(seed), size))


def source(seed: int, is_film: bool = False, name: str | None = None) -> Source:
    return Source.from_picture(name or str(seed), float(seed), picture(seed), is_film)


@pytest.mark.parametrize("name", [*EDITS, *NEVER_FITTED])
@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_every_edit_gives_a_picture_and_repeats_itself(name: str, strength: float) -> None:
    original, other = picture(1), picture(2, (90, 140))
    first = {**EDITS, **NEVER_FITTED}[name](original, strength, np.random.default_rng(0), other)
    again = {**EDITS, **NEVER_FITTED}[name](original, strength, np.random.default_rng(0), other)
    assert first.mode == "RGB"
    assert min(first.size) > 30
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


def test_edits_that_only_judge_are_never_fitted_on() -> None:
    assert not set(NEVER_FITTED) & {*EDITS, *batch_module.SINGLE, *batch_module.CHAINED}


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
        Source.from_picture("a", 0.5, still, True),
        Source.from_picture("a", 9.5, still, True),
        Source.from_picture("a", 10.5, other, True),
        Source.from_picture("b", 0.5, still, True),
    ]
    found = find_no_contest(sources)
    assert found[0, 1], "the same picture in the same film"
    assert found[1, 2], "the next second"
    assert not found[0, 2]
    assert not found[0, 3], "another film is a contest even if it looks the same"
    assert not found.diagonal().any()


def test_a_copy_is_never_blamed_for_what_it_shows() -> None:
    alike = np.eye(5, dtype=bool)
    alike[1, 4] = alike[4, 1] = True  # two seconds that look the same
    copies = torch.tensor([[0, 2], [1, -1]])  # in the first, source 2 shines through
    originals = torch.tensor([[0], [1], [2], [3], [4]])
    assert Contest(alike).excuse(copies, originals).tolist() == [
        [True, False, True, False, False],
        [False, True, False, False, True],
    ]


def test_a_loss_falls_when_copies_come_near_and_strangers_go() -> None:
    rng = torch.Generator().manual_seed(0)
    originals = torch.nn.functional.normalize(torch.randn(12, 1, 256, generator=rng), dim=2)
    away = torch.nn.functional.normalize(torch.randn(12, 3, 256, generator=rng), dim=2)
    shown = torch.arange(12)[:, None, None].expand(12, 4, 2).clone()
    shown[..., 1] = -1
    contest = Contest(np.eye(12, dtype=bool))
    none = torch.zeros(0, 256), torch.zeros(0, 1, dtype=torch.int64)

    def total(near: float) -> float:
        copies = torch.nn.functional.normalize(near * originals + (1 - near) * away, dim=2)
        return compare(torch.cat([originals, copies], 1), shown, *none, contest).total.item()

    assert total(0.9) < total(0.6) < total(0.3)
    huddled = torch.nn.functional.normalize(originals + 0.3 * originals[:1], dim=2).repeat(1, 4, 1)
    spread = originals.repeat(1, 4, 1)
    assert (
        compare(spread, shown, *none, contest).total < compare(huddled, shown, *none, contest).total
    )


def test_whitening_evens_out_directions_and_stays_a_linear_head() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((500, 30)).astype(np.float32)
    weight = torch.from_numpy(
        (rng.standard_normal((8, 30)) * 3.0 ** -np.arange(8)[:, None]).astype(np.float32)
    )
    bias = torch.zeros(8)

    def describe(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        rows = features @ weight.T + bias
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    before = describe(weight.numpy(), bias.numpy())
    after = describe(*whiten(weight, bias, before, power=0.25))

    def strongest(rows: np.ndarray) -> float:
        return float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1])

    assert strongest(after) < 0.9 * strongest(before)
    turned = describe(*whiten(weight, bias, before, power=0))
    np.testing.assert_allclose(turned @ turned.T, before @ before.T, atol=1e-5)


def test_a_batch_holds_originals_copies_and_runs_of_film() -> None:
    sources = [*(source(n) for n in range(6)), *(source(n, True, "film") for n in range(6, 12))]
    pictures, shown = Painter(sources).draw(np.random.default_rng(0), originals=15)
    assert pictures.shape[:2] == (15, 4)
    assert (shown[:, :, 0] == shown[:, :1, 0]).all(), "a copy shows its original"
    assert (shown[:, 0, 1] == -1).all()
    assert (shown[:, 1:, 1] >= 0).all(), "and may show another picture"
    films = shown[:, 0, 0].reshape(-1, 3)
    assert (films >= 6).all(axis=1).any(), "some rows are runs of one film"
    again, _ = Painter(sources).draw(np.random.default_rng(0), originals=15)
    assert np.array_equal(pictures, again)


def test_batches_of_films_alone_can_be_drawn() -> None:
    sources = [source(number, True, "film") for number in range(4)]
    pictures, _ = Painter(sources).draw(np.random.default_rng(0), originals=7)
    assert len(pictures) == 7


def test_a_stream_goes_on_where_it_was_left() -> None:
    sources = [source(number) for number in range(3)]
    whole, rest = stream_batches(sources, seed=1), stream_batches(sources, seed=1, first=1)
    next(whole)
    second = next(whole)
    assert np.array_equal(second.shown, next(rest).shown)
    assert second.maps.shape[0] == 64 * 4
    whole.close()
    rest.close()


def run_graph(graph: bytes, pictures: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(graph).run(None, {"pictures": pictures})[0]


@pytest.mark.parametrize("side", [224, 160])
def test_the_network_gives_the_numbers_of_the_graph(side: int) -> None:
    backbone = read_backbone(find_backbone())
    network = Network(backbone, 256)
    weights = network.weights()
    pictures = np.stack([np.asarray(picture(number, (side, side))) for number in range(3)])
    maps = run_graph(build_first_blocks(backbone), pictures)
    with torch.no_grad():
        found = network(torch.from_numpy(maps)).numpy()
    graph = build_graph({**backbone, **weights}, weights)
    np.testing.assert_allclose(found, run_graph(graph, pictures), atol=1e-5)


def test_a_fit_finds_more_copies_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    sources = [source(number) for number in range(8)]
    network = make_network(None)
    contest = Contest(np.eye(len(sources), dtype=bool))
    work = Fit(network, contest, steps=8)
    stream = stream_batches(sources, seed=0)
    drawn = [next(stream) for _ in range(2)]
    stream.close()
    batches = [Batch(each.maps[:48], each.shown[:12]) for each in drawn]
    losses = [work.learn(batches[step % 2])[0] for step in range(4)]
    assert losses[-1] < 0.9 * losses[0]
    work.save(tmp_path / "state")
    again = Fit(make_network(None), contest, steps=8)
    again.load(tmp_path / "state")
    assert again.step == 4
    assert again.learn(batches[0]) == pytest.approx(work.learn(batches[0]), rel=1e-3)


def test_a_fit_writes_weights_that_the_descriptor_reads(tmp_path: Path) -> None:
    from retrieval import load_descriptor

    sources = [source(number) for number in range(4)]
    network = make_network(None)
    fit(network, sources, steps=1, seed=0, state=tmp_path / "state")
    save_weights(network, tmp_path / "lite0.safetensors")
    assert (tmp_path / "state").exists()
    assert make_network(tmp_path / "lite0.safetensors").weight.shape == (256, 1952)
    descriptor = load_descriptor(
        "lite0", weights=tmp_path / "lite0.safetensors", cache_dir=tmp_path, threads=1, side=224
    )
    pictures = np.stack([np.asarray(picture(number, (224, 224))) for number in range(2)])
    maps = run_graph(build_first_blocks(read_backbone(find_backbone())), pictures)
    with torch.no_grad():
        expected = network(torch.from_numpy(maps)).numpy()
    np.testing.assert_allclose(descriptor.embed(pictures), expected, atol=5e-3)
