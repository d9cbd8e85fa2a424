"""Imports: each benchmark's own file format, shown on a file made here."""

import json

import numpy as np
import pytest

from retrieval.errors import NotFound
from vcl_plugin.evaluation.folder import BadFolder, Folder
from vcl_plugin.training.datasets import (
    read_fivr,
    read_svd,
    read_vcdb,
    read_vcsl,
    read_weak,
    write_import,
)
from vcl_plugin.training.pairs import FolderPairs


def save_features(folder, *names):
    folder.mkdir()
    for number, name in enumerate(names):
        rows = np.random.default_rng(number).standard_normal((9 + number, 256))
        np.save(folder / f"{name}.npy", rows.astype(np.float32))
    return folder


def test_vcsl_pairs_keep_boxes_and_negatives(tmp_path):
    (tmp_path / "labels.json").write_text(json.dumps({"aa-bb": [[0, 1, 4, 5], [5, 6, 8, 9]]}))
    (tmp_path / "pairs.csv").write_text("query_id,reference_id\naa,bb\naa,cc\n")
    imported = read_vcsl(tmp_path / "labels.json", tmp_path / "pairs.csv")
    features = save_features(tmp_path / "npy", "aa", "bb", "cc")
    counts = write_import(imported, tmp_path / "out", features)
    assert counts["pairs"] == 2
    pairs = Folder(tmp_path / "out").pairs
    assert [pair.truth for pair in pairs] == [((0, 1, 4, 5), (5, 6, 8, 9)), ()]
    assert FolderPairs([tmp_path / "out"]).pair(0).boxes.shape == (2, 4)


def test_vcsl_key_that_can_be_cut_twice_needs_the_pair_file(tmp_path):
    (tmp_path / "labels.json").write_text(json.dumps({"a-b-c": [[0, 0, 4, 4]]}))
    with pytest.raises(BadFolder, match="a-b-c"):
        read_vcsl(tmp_path / "labels.json")


def test_vcdb_lines_become_boxes_in_our_order(tmp_path):
    (tmp_path / "titanic.txt").write_text(
        "x.flv,y.mp4,00:00:10,00:00:20,00:01:00,00:01:12\n"
        "x.flv,y.mp4,00:00:30,00:00:40,01:00:00,01:00:10\n"
    )
    imported = read_vcdb(tmp_path)
    assert imported.pairs == (("x", "y"),)
    assert imported.boxes["x", "y"] == ((10, 60, 20, 72), (30, 3600, 40, 3610))


def test_vcdb_line_with_a_missing_field_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("x.flv,y.mp4,00:00:10,00:00:20\n")
    with pytest.raises(BadFolder, match="line 1"):
        read_vcdb(tmp_path)
    with pytest.raises(NotFound):
        read_vcdb(tmp_path / "empty")


def test_fivr_same_footage_is_a_copy_and_same_event_is_not(tmp_path):
    path = tmp_path / "annotation.json"
    path.write_text(json.dumps({"q": {"ND": ["a"], "DS": ["b"], "CS": ["c"], "IS": ["d"]}}))
    assert read_fivr(path).copies == {
        ("q", "a"): True,
        ("q", "b"): True,
        ("q", "c"): False,
        ("q", "d"): False,
    }


def test_svd_lines_are_weak_labels_and_train_without_boxes(tmp_path):
    path = tmp_path / "groundtruth"
    path.write_text("q.mp4 a.mp4 1\nq.mp4 b.mp4 0\nq.mp4 gone.mp4 1\n")
    imported = read_svd(path)
    features = save_features(tmp_path / "npy", "q", "a", "b")
    counts = write_import(imported, tmp_path / "out", features)
    assert counts == {
        "pairs": 2,
        "with_boxes": 0,
        "weak_copies": 1,
        "weak_others": 1,
        "videos_without_descriptors": 1,
    }
    assert read_weak(tmp_path / "out") == {("q", "a"): True, ("q", "b"): False}
    pairs = FolderPairs([tmp_path / "out"], knows_boxes=False)
    copy, other = pairs.pair(0), pairs.pair(1)
    assert (copy.is_copy, copy.boxes) == (True, None)
    assert other.is_copy is False
    assert len(other.boxes) == 0


def test_svd_line_of_another_shape_is_named(tmp_path):
    (tmp_path / "g").write_text("q a 2\n")
    with pytest.raises(BadFolder, match="line 1"):
        read_svd(tmp_path / "g")
