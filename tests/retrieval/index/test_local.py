"""The index answers as a plain matrix product would, through every change, save and load."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.errors import FingerprintMismatch
from retrieval.index.index import Position
from retrieval.index.local import VideoIndex
from retrieval.index.snapshots import current_snapshot
from retrieval.plugins import Pooled

DIMENSION = 16


def pooled(seed: int, count: int = 3, dimension: int = DIMENSION) -> Pooled:
    rows = np.random.default_rng(seed).standard_normal((count, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    starts = np.arange(count) * 4.0
    spans = np.stack([starts, starts + 8], axis=1)
    return Pooled(rows.astype(np.float32), spans.astype(np.float32))


def filled(*names: str) -> VideoIndex:
    index = VideoIndex("lite0.mean", DIMENSION)
    for seed, name in enumerate(names):
        index.add(name, pooled(seed))
    return index


def check_against_brute_force(
    index: VideoIndex, truth: dict[str, Pooled], k: int, without: str | None = None
) -> None:
    queries = pooled(99, 4).vectors
    hits = index.search(queries, k, without)
    rows = [
        (video, span, vector)
        for video, each in truth.items()
        if video != without
        for span, vector in zip(each.spans.tolist(), each.vectors, strict=True)
    ]
    expected = queries @ np.array([row[2] for row in rows]).reshape(len(rows), DIMENSION).T
    expected = expected.reshape(len(queries), len(rows))
    best = -np.sort(-expected, axis=1)[:, :k]
    by_place = {(video, tuple(span)): vector for video, span, vector in rows}
    for line, query in enumerate(queries):
        is_hit = hits.numbers[line] >= 0
        assert np.allclose(hits.scores[line][is_hit], best[line], atol=1e-3)
        for score, number, span in zip(
            hits.scores[line][is_hit],
            hits.numbers[line][is_hit],
            hits.spans[line][is_hit],
            strict=True,
        ):
            vector = by_place[hits.videos[number], tuple(span.tolist())]
            assert np.isclose(query @ vector, score, atol=1e-3)


changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "remove", "save", "train"]),
        st.sampled_from(["a", "b", "c", "d"]),
        st.integers(0, 30),
        st.integers(1, 5),
    ),
    max_size=14,
)


@given(changes, st.integers(1, 12), st.sampled_from([None, "a", "unknown"]))
@settings(max_examples=60, deadline=None)
def test_any_history_of_changes_answers_like_brute_force(tmp_path_factory, steps, k, without):
    folder = tmp_path_factory.mktemp("index")
    truth = {"film": pooled(77, 70)}
    index = VideoIndex("key", DIMENSION)
    index.add("film", truth["film"])
    for action, video, seed, count in steps:
        if action == "add":
            truth[video] = pooled(seed, count)
            index.add(video, truth[video])
        elif action == "remove":
            truth.pop(video, None)
            index.remove(video)
        else:
            # So few rows are all looked at and re-ranked, whatever their codes say.
            index.save(folder, fast_from=1 if action == "train" else 1000)
            index = VideoIndex.load(folder, "key", DIMENSION)
    assert len(index) == len(truth)
    assert index.vectors == sum(len(each.vectors) for each in truth.values())
    assert all(video in index for video in truth)
    check_against_brute_force(index, truth, k, without)
    shutil.rmtree(folder)


def test_an_empty_index_finds_nothing():
    hits = VideoIndex("key", DIMENSION).search(pooled(1).vectors, 5)
    assert hits.numbers.shape == (3, 0)
    assert hits.spans.shape == (3, 0, 2)


def test_a_video_added_again_has_its_new_vectors_only():
    index = filled("a", "b")
    index.add("a", pooled(50, 5))
    check_against_brute_force(index, {"b": pooled(1), "a": pooled(50, 5)}, 10)
    assert index.vectors == 8


def test_vectors_of_another_dimension_are_refused_and_change_nothing():
    index = filled("a")
    with pytest.raises(FingerprintMismatch, match=r"16 dimensions.*'b' has 8.*vcl index build"):
        index.add("b", pooled(1, dimension=8))
    assert "b" not in index
    check_against_brute_force(index, {"a": pooled(0)}, 10)


def test_a_snapshot_is_swapped_whole_and_the_old_one_is_cleaned_away(tmp_path: Path):
    index = filled("a", "b")
    index.commit(Position(7, "then", {"lost": "/there"}))
    first = index.save(tmp_path)
    reader = VideoIndex.load(tmp_path, "lite0.mean", DIMENSION)
    index.remove("a")
    second = index.save(tmp_path)
    assert current_snapshot(tmp_path, "lite0.mean") == second
    assert not first.exists()
    assert reader.position == Position(7, "then", {"lost": "/there"})
    # Who mapped the old file goes on reading it.
    check_against_brute_force(reader, {"a": pooled(0), "b": pooled(1)}, 10)
    loaded = VideoIndex.load(tmp_path, "lite0.mean", DIMENSION)
    check_against_brute_force(loaded, {"b": pooled(1)}, 10)


def test_saving_twice_in_one_process_keeps_a_whole_snapshot(tmp_path: Path):
    index = filled("a")
    index.save(tmp_path)
    index.save(tmp_path)
    assert len(VideoIndex.load(tmp_path, "lite0.mean", DIMENSION)) == 1
    assert len([each for each in tmp_path.iterdir() if each.is_dir()]) == 1


def test_indexes_of_two_kinds_live_side_by_side(tmp_path: Path):
    filled("a").save(tmp_path)
    other = VideoIndex("isc.mean", DIMENSION)
    other.add("x", pooled(5))
    other.save(tmp_path)
    assert "a" in VideoIndex.load(tmp_path, "lite0.mean", DIMENSION)
    assert "x" in VideoIndex.load(tmp_path, "isc.mean", DIMENSION)
    assert len(VideoIndex.load(tmp_path, "sscd.mean", DIMENSION)) == 0


@pytest.mark.parametrize(
    "file",
    ["vectors.faiss", "owner.npy", "spans.npy", "videos.json", "facts.json", "current.json"],
)
@pytest.mark.parametrize("damage", ["gone", "empty", "noise", "short"])
def test_a_snapshot_that_cannot_be_read_is_an_empty_index_to_be_replayed(
    tmp_path: Path, file: str, damage: str
):
    index = filled("a", "b")
    index.commit(Position(7))
    snapshot = index.save(tmp_path)
    path = tmp_path / "lite0.mean.current.json" if file == "current.json" else snapshot / file
    if damage == "gone":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes({"empty": b"", "noise": b"\x00{]" * 40, "short": whole[:-9]}[damage])
    loaded = VideoIndex.load(tmp_path, "lite0.mean", DIMENSION)
    assert (len(loaded), loaded.position) == (0, Position())


def test_parts_that_do_not_belong_together_are_not_loaded(tmp_path: Path):
    snapshot = filled("a").save(tmp_path)
    facts = json.loads((snapshot / "facts.json").read_text())
    (snapshot / "facts.json").write_text(json.dumps(facts | {"key": "another"}))
    assert len(VideoIndex.load(tmp_path, "lite0.mean", DIMENSION)) == 0
    assert len(VideoIndex.load(tmp_path, "lite0.mean", DIMENSION * 2)) == 0


def test_two_processes_that_save_at_once_leave_a_whole_snapshot(tmp_path: Path):
    code = (
        "import sys, pathlib\n"
        "from tests.retrieval.index.test_local import filled\n"
        "for _ in range(20): filled('a', 'b').save(pathlib.Path(sys.argv[1]))\n"
    )
    root = Path(__file__).parents[3]
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root) for _ in range(2)
    ]
    assert [child.wait() for child in children] == [0, 0]
    assert len(VideoIndex.load(tmp_path, "lite0.mean", DIMENSION)) == 2
