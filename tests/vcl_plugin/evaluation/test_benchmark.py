"""Building benchmark folders, from generated pictures and a generated video."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from retrieval.describe.fitting.material import split_of
from retrieval.errors import NotFound, Refused
from vcl_plugin.evaluation import bank as bank_module
from vcl_plugin.evaluation import benchmark
from vcl_plugin.evaluation.bank import Bank, embed_views, fill_bank
from vcl_plugin.evaluation.benchmark import Order, compose_pairs, make_benchmark
from vcl_plugin.evaluation.composition import (
    NEGATIVES,
    Composer,
    Geometry,
    View,
    read_geometry,
)
from vcl_plugin.evaluation.edits import EDITS, edit_frame
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.evaluation.runner import Method, evaluate
from vcl_plugin.evaluation.sources import (
    Source,
    find_photos,
    find_videos,
    make_cards,
    read_views,
)


class PixelDescriptor:
    """A small picture of the picture: enough to tell one source from another, and quick."""

    name = "pixels"

    class fingerprint:  # noqa: N801
        key = "pixels-1"

    def embed(self, frames: np.ndarray) -> np.ndarray:
        small = [Image.fromarray(each).convert("L").resize((16, 16)) for each in frames]
        rows = np.stack([np.asarray(each, dtype=np.float32).ravel() for each in small])
        rows = rows - rows.mean(axis=1, keepdims=True) + 1e-3
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def _quick_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bank_module, benchmark):
        monkeypatch.setattr(module, "load_descriptor", lambda name=None, **_: PixelDescriptor())


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("material")
    draw = np.random.default_rng(0)
    (root / "images").mkdir()
    for number in range(90):
        coarse = draw.integers(0, 256, (9, 12, 3)).astype(np.uint8)
        Image.fromarray(coarse).resize((240, 180)).save(root / "images" / f"photo{number}.png")
    (root / "videos").mkdir()
    for name in ("clip0", "clip3"):
        write_video(root / "videos" / f"{name}.mp4", draw, seconds=24)
    rows = []
    for number in range(80):
        start = int(draw.integers(0, 10))
        rows.append(
            {
                "query_frames": 40,
                "reference_frames": 60,
                "segments": [[start, 10, start + 20, 30], [32, 40, 38, 52]],
                "topic": "news",
                "event": number,
            }
        )
    (root / "labels.json").write_text(json.dumps(rows))
    return {"geometry": root / "labels.json", "images": root / "images", "videos": root / "videos"}


def write_video(path: Path, draw: np.random.Generator, seconds: int) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=4)
        stream.width, stream.height, stream.pix_fmt = 96, 72, "yuv420p"
        for _ in range(seconds):
            coarse = draw.integers(0, 256, (6, 8, 3)).astype(np.uint8)
            picture = np.asarray(Image.fromarray(coarse).resize((96, 72)))
            for _ in range(4):
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                container.mux(stream.encode(frame))
        container.mux(stream.encode())


def order(material: dict[str, Path], **changes: Any) -> Order:
    facts: dict[str, Any] = {"seed": 1, "split": "train", "copies": 4, "negatives": 6}
    return Order(
        geometry=(material["geometry"],),
        images=material["images"],
        videos=material["videos"],
        **{**facts, **changes},
    )


@cache
def all_sources(images: Path, videos: Path) -> list[Source]:
    return [*find_photos(images), *find_videos(videos)]


def sources_of(material: dict[str, Path], split: str) -> list[Source]:
    found = all_sources(material["images"], material["videos"])
    return [*(each for each in found if each.split == split), *make_cards()]


def composer(material: dict[str, Path], seed: int = 0, split: str = "train") -> Composer:
    return Composer(sources_of(material, split), np.random.default_rng(seed))


GEOMETRY = Geometry(40, 60, ((5, 10, 25, 30), (30, 40, 36, 52)), "news", "train")


def test_the_same_seed_builds_the_same_folder_from_descriptors_computed_once(
    material: dict[str, Path], tmp_path: Path
) -> None:
    first = make_benchmark(order(material), tmp_path / "one", tmp_path / "bank")
    second = make_benchmark(order(material), tmp_path / "two", tmp_path / "bank")
    assert first["views_computed"] == first["views"] > 100
    assert second["views_computed"] == 0
    one, two = Folder(tmp_path / "one"), Folder(tmp_path / "two")
    assert one.pairs == two.pairs
    for pair in one.pairs:
        assert np.array_equal(one.load_features(pair.query_id), two.load_features(pair.query_id))
    assert first["kinds"] == {"copy": 4, **dict.fromkeys(NEGATIVES, 1)}


def test_another_seed_composes_other_pairs(material: dict[str, Path]) -> None:
    one = compose_pairs(order(material), composer(material, 1))
    two = compose_pairs(order(material), composer(material, 2))
    assert [pair.query for pair in one] != [pair.query for pair in two]


def test_a_method_finds_the_copies_of_a_built_folder(
    material: dict[str, Path], tmp_path: Path
) -> None:
    make_benchmark(order(material, copies=6, negatives=0), tmp_path / "out", tmp_path / "bank")
    assert evaluate(Folder(tmp_path / "out"), Method("tn")).summary.recall > 0.3
    details = json.loads((tmp_path / "out" / "details.json").read_text())
    assert {each["kind"] for each in details.values()} == {"copy"}


def test_an_existing_benchmark_is_not_overwritten(
    material: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "pairs.csv").touch()
    with pytest.raises(Refused, match="already holds"):
        make_benchmark(order(material), tmp_path / "out", tmp_path / "bank")


def test_splits_share_no_source(material: dict[str, Path]) -> None:
    splits = [
        {each.group for each in sources_of(material, name)} for name in ("train", "val", "test")
    ]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert splits[one] & splits[other] == {"card"}
    used = {
        view.source
        for pair in compose_pairs(order(material), composer(material))
        for view in pair.query
    }
    assert all(
        name.startswith(("card", "black")) or split_of(Path(name).stem) == "train" for name in used
    )


def test_events_stay_in_one_split(tmp_path: Path) -> None:
    rows = [
        {"query_frames": 30, "reference_frames": 30, "segments": [[0, 0, n, n]], "event": n % 5}
        for n in range(5, 25)
    ]
    (tmp_path / "labels.json").write_text(json.dumps(rows))
    geometry = read_geometry(tmp_path / "labels.json", max_frames=100)
    splits: dict[int, set[str]] = {}
    for row, found in zip(rows, geometry, strict=True):
        splits.setdefault(int(row["event"]), set()).add(found.split)  # type: ignore[call-overload]
    assert all(len(each) == 1 for each in splits.values())


def test_labels_that_one_copy_cannot_have_are_left_out(tmp_path: Path) -> None:
    rows = [
        {
            "query_frames": 50,
            "reference_frames": 50,
            "segments": [
                [0, 0, 20, 20],
                [10, 30, 14, 34],  # its query seconds already show another frame
                [30, 0, 31, 1],  # one second
                [32, 0, 36, 40],  # ten times faster
                [40, 10, 60, 30],  # beyond the end
            ],
        },
        {"query_frames": 5000, "reference_frames": 50, "segments": [[0, 0, 9, 9]]},
    ]
    (tmp_path / "labels.json").write_text(json.dumps(rows))
    (row,) = read_geometry(tmp_path / "labels.json", max_frames=500)
    assert row.boxes == ((0, 0, 20, 20), (40, 10, 50, 30))


def test_copied_seconds_show_the_reference_at_the_labelled_speed(
    material: dict[str, Path],
) -> None:
    for seed in range(8):
        pair = composer(material, seed).compose_copy(GEOMETRY)
        assert (len(pair.query), len(pair.reference)) == (40, 60)
        for (q0, r0, q1, r1), facts in zip(pair.truth, pair.facts["segments"], strict=True):
            shown = [(view.source, view.take) for view in pair.reference[int(r0) : int(r1)]]
            for second in range(int(q0), int(q1)):
                view = pair.query[second]
                assert view.edit == facts["edit"] != "none"
                assert (view.source, view.take) in shown
            speed = (r1 - r0) / (q1 - q0)
            place = (q1 - q0) // 2
            expected = r1 - 1 - place * speed if facts["is_reversed"] else r0 + place * speed
            near = pair.reference[max(int(expected) - 1, 0) : int(expected) + 2]
            assert pair.query[int(q0 + place)].source in {view.source for view in near}


def test_outside_the_copies_the_two_videos_share_no_source(material: dict[str, Path]) -> None:
    for seed in range(5):
        pair = composer(material, seed).compose_copy(GEOMETRY)
        outside = {
            view.source
            for second, view in enumerate(pair.query)
            if not any(box[0] <= second < box[2] for box in pair.truth)
        }
        shared = outside & {view.source for view in pair.reference}
        assert all(name.startswith("card") for name in shared)


@pytest.mark.parametrize("kind", NEGATIVES)
def test_negatives_show_no_second_twice(material: dict[str, Path], kind: str) -> None:
    """Cards and black prove nothing; everything else of the reference is never in the query."""
    for seed in range(5):
        pair = composer(material, seed).compose_negative(GEOMETRY, kind)
        assert pair.truth == ()
        shared = set(pair.query) & set(pair.reference)
        assert all(view.source.startswith(("card", "black")) for view in shared)
        if kind == "takes":  # the whole of a scene would hold both halves
            halves = {view.source for view in pair.query if view.take}
            views = [*pair.query, *pair.reference]
            assert all(view.take for view in views if view.source in halves)


def test_hard_negatives_hold_what_makes_them_hard(material: dict[str, Path]) -> None:
    made = {kind: composer(material, 3).compose_negative(GEOMETRY, kind) for kind in NEGATIVES}

    def sources(views: list[View]) -> set[str]:
        return {view.source for view in views}

    def shared(kind: str) -> set[str]:
        return sources(made[kind].query) & sources(made[kind].reference)

    assert any(name.startswith("card") for name in shared("cards"))
    assert "black" in shared("black")
    assert len(set(made["repeats"].query)) < len(made["repeats"].query)
    assert any(name.startswith("photo") for name in shared("takes"))
    assert any(name.startswith("clip") for name in shared("neighbours"))
    assert shared("unrelated") == set()


def test_neighbours_are_stretches_of_one_film_that_never_meet(material: dict[str, Path]) -> None:
    cuts = set()
    for seed in range(12):
        pair = composer(material, seed).compose_negative(GEOMETRY, "neighbours")
        (clip,) = (
            name
            for name in {view.source for view in pair.query}
            & {view.source for view in pair.reference}
            if name.startswith("clip")
        )
        query, reference = (
            {view.half // 2 for view in side if view.source == clip}
            for side in (pair.query, pair.reference)
        )
        assert min(abs(one - other) for one in query for other in reference) > 2
        assert pair.facts["source"] == clip.removesuffix(".mp4")
        cuts.add((min(query) < min(reference), len(query)))
    assert {is_earlier for is_earlier, _ in cuts} == {True, False}
    assert len(cuts) > 3


def test_a_pool_too_small_for_a_video_says_so(material: dict[str, Path]) -> None:
    photos = find_photos(material["images"])[:6]
    small = Composer([*photos, *make_cards()], np.random.default_rng(0))
    with pytest.raises(Refused, match="without repeating"):
        small.compose_copy(Geometry(400, 400, ((0, 0, 9, 9),), "", "train"))


def test_more_copies_than_labels_are_refused(material: dict[str, Path]) -> None:
    with pytest.raises(Refused, match="usable rows"):
        compose_pairs(order(material, copies=5000), composer(material))


@pytest.mark.parametrize("name", sorted(EDITS))
def test_an_edit_changes_the_picture_and_always_in_the_same_way(name: str) -> None:
    frame = np.random.default_rng(5).integers(0, 256, (90, 120, 3)).astype(np.uint8)
    before = frame.copy()
    once, again = edit_frame(frame, name), edit_frame(frame, name)
    assert np.array_equal(once, again)
    assert np.array_equal(frame, before)
    assert once.dtype == np.uint8
    assert (name == "none") == (once.shape == frame.shape and np.array_equal(once, frame))


def test_takes_of_a_photograph_see_disjoint_halves(tmp_path: Path) -> None:
    halves = np.zeros((120, 160, 3), np.uint8)
    halves[:, 80:] = 255
    Image.fromarray(halves).save(tmp_path / "halves.png")
    (photo,) = find_photos(tmp_path)
    views = read_views(photo, [0, 1, 2])
    assert max(frame[:, :-4].max() for frame in views[1]) < 40
    assert min(frame[:, 4:].min() for frame in views[2]) > 215
    assert len(views[0]) == 2 * photo.seconds


def test_footage_is_read_at_two_frames_a_second(material: dict[str, Path]) -> None:
    video = find_videos(material["videos"])[0]
    frames = read_views(video, [0])[0]
    assert len(frames) == 2 * video.seconds
    first, second, third = (each.astype(int) for each in frames[:3])
    assert np.abs(first - second).mean() < np.abs(first - third).mean()


def test_videos_of_one_group_stay_together(tmp_path: Path) -> None:
    for name in ("high.mp4", "low.mp4"):
        write_video(tmp_path / name, np.random.default_rng(0), seconds=4)
    (tmp_path / "MANIFEST.tsv").write_text("file\tgroup\nhigh.mp4\tfilm\nlow.mp4\tfilm\n")
    assert {source.group for source in find_videos(tmp_path)} == {"film"}


def test_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no images"):
        find_photos(tmp_path)
    with pytest.raises(NotFound, match="no videos"):
        find_videos(tmp_path)


def test_a_bank_is_read_back_and_belongs_to_one_descriptor(
    material: dict[str, Path], tmp_path: Path
) -> None:
    sources = find_photos(material["images"])[:3]
    views = [
        View(source.name, 0, half, edit)
        for source in sources
        for half in (0, 5)
        for edit in ("none", "mirror")
    ]
    bank = Bank(tmp_path, "pixels-1", sources)
    assert fill_bank(bank, views) == len(views)
    again = Bank(tmp_path, "pixels-1", sources)
    assert again.missing(views) == []
    assert np.array_equal(again.lookup(views), bank.lookup(views))
    expected = embed_views(views, {each.name: each for each in sources}, PixelDescriptor().embed)
    assert np.allclose(again.lookup(views), expected)
    assert len(Bank(tmp_path, "pixels-2", sources).missing(views)) == len(views)


def test_a_source_that_changed_is_computed_anew(tmp_path: Path) -> None:
    Image.new("RGB", (80, 60), (200, 30, 30)).save(tmp_path / "photo.png")
    (photo,) = find_photos(tmp_path)
    view = View(photo.name, 0, 0)
    fill_bank(Bank(tmp_path / "bank", "pixels-1", [photo]), [view])
    Image.new("RGB", (80, 60), (30, 30, 200)).save(tmp_path / "photo.png")
    assert Bank(tmp_path / "bank", "pixels-1", [photo]).missing([view]) == [view]
