from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.errors import BadDescriptors, NotFound
from vcl_plugin.evaluation.folder import (
    BadFolder,
    Folder,
    LabelledPair,
    file_name,
    write_folder,
)

ODD_IDS = ["a-b", "a_b.mp4", "c/d", "..", "50% off", 'quo"te,comma', "line\nbreak", "日本", "%2F"]


def features(count: int = 3) -> np.ndarray:
    return np.eye(256, dtype=np.float32)[:count]


def small_folder(path: Path, pairs: list[LabelledPair]) -> Folder:
    ids = {each for pair in pairs for each in (pair.query_id, pair.reference_id)}
    write_folder(path, {each: features() for each in ids}, pairs)
    return Folder(path)


def test_ids_with_any_character_come_back(tmp_path: Path) -> None:
    pairs = [
        LabelledPair(query, reference, ((0, 0, 2, 3),) if query < reference else (), "news")
        for query in ODD_IDS
        for reference in ODD_IDS
    ]
    folder = small_folder(tmp_path, pairs)
    assert folder.pairs == pairs
    for each in ODD_IDS:
        assert np.array_equal(folder.load_features(each), features())


def test_no_id_leaves_the_features_folder(tmp_path: Path) -> None:
    folder = small_folder(tmp_path, [LabelledPair("a", "b", ())])
    for each in [*ODD_IDS, "../../etc/passwd", "/root/x"]:
        assert folder.feature_path(each).parent == tmp_path / "features"


@given(st.text(max_size=16), st.text(max_size=16))  # longer ones may end in a hash
@settings(max_examples=200, deadline=None)
def test_file_names_are_reversible_and_never_shared(one: str, other: str) -> None:
    assert unquote(file_name(one)) == one
    assert (file_name(one) == file_name(other)) == (one == other)
    assert "/" not in file_name(one)


def test_an_endless_id_still_fits_a_file_name(tmp_path: Path) -> None:
    long, longer = "é/" * 400, "é/" * 401
    folder = small_folder(tmp_path, [LabelledPair(long, longer, ((0, 0, 1, 1),))])
    assert folder.pairs[0].truth == ((0, 0, 1, 1),)
    assert len(folder.load_features(longer)) == 3
    assert file_name(long) != file_name(longer)


def test_a_folder_made_elsewhere_may_use_plain_names(tmp_path: Path) -> None:
    folder = small_folder(tmp_path, [LabelledPair("a", "b", ())])
    np.save(tmp_path / "features" / "what?.npy", features(2))
    np.save(tmp_path / "features" / "100%.npy", features(1))
    assert len(folder.load_features("what?")) == 2
    assert len(folder.load_features("100%")) == 1


def test_the_escaped_name_of_one_id_is_not_taken_for_another(tmp_path: Path) -> None:
    folder = small_folder(tmp_path, [LabelledPair("a/b", "c", ())])
    assert (tmp_path / "features" / "a%2Fb.npy").exists()
    with pytest.raises(NotFound):
        folder.load_features("a%2Fb")


def test_labels_are_looked_up_by_building_the_key(tmp_path: Path) -> None:
    folder = small_folder(tmp_path, [LabelledPair("a-b", "c-d", ((1, 2, 3, 4),))])
    assert "a-b-c-d" in json.loads((tmp_path / "labels.json").read_text())
    assert folder.pairs[0].truth == ((1, 2, 3, 4),)


def test_pairs_whose_plain_keys_collide_keep_their_own_labels(tmp_path: Path) -> None:
    pairs = [LabelledPair("a-b", "c", ((0, 0, 1, 1),)), LabelledPair("a", "b-c", ())]
    assert small_folder(tmp_path, pairs).pairs == pairs


def test_a_label_that_fits_two_pairs_is_refused(tmp_path: Path) -> None:
    folder = small_folder(tmp_path, [LabelledPair("a-b", "c", ()), LabelledPair("a", "b-c", ())])
    (tmp_path / "labels.json").write_text('{"a-b-c": [[0, 0, 1, 1]]}')
    with pytest.raises(BadFolder, match="fits 2 pairs"):
        _ = folder.pairs


def test_a_byte_order_mark_and_further_columns_are_no_trouble(tmp_path: Path) -> None:
    folder = small_folder(tmp_path, [LabelledPair("a", "b", ())])
    (tmp_path / "pairs.csv").write_text("\ufeffnote,query_id,reference_id\nx,a,b\nx,a,b\n")
    assert folder.pairs == [LabelledPair("a", "b", ())]


def test_topics_may_be_given_for_a_query(tmp_path: Path) -> None:
    folder = small_folder(tmp_path, [LabelledPair("a", "b", ())])
    (tmp_path / "topics.json").write_text('{"a": "sports"}')
    assert folder.pairs[0].topic == "sports"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("pairs.csv", "query,ref\na,b\n", "query_id and reference_id"),
        ("pairs.csv", "query_id,reference_id\na\n", "line 2"),
        ("labels.json", "[1]", "one JSON object"),
        ("labels.json", "{", "no JSON"),
        ("labels.json", '{"a-b": [[1, 2, 3]]}', "q_start"),
        ("labels.json", '{"a-b": [[1, 2, 3, NaN]]}', "not finite"),
    ],
)
def test_a_broken_file_is_named_with_its_trouble(
    tmp_path: Path, name: str, content: str, complaint: str
) -> None:
    folder = small_folder(tmp_path, [LabelledPair("a", "b", ())])
    (tmp_path / name).write_text(content)
    with pytest.raises(BadFolder, match=complaint):
        _ = folder.pairs


def test_a_folder_without_pairs_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"pairs\.csv"):
        Folder(tmp_path)


def test_a_file_of_objects_is_refused_and_not_unpickled(tmp_path: Path) -> None:
    folder = small_folder(tmp_path, [LabelledPair("a", "b", ())])
    np.save(tmp_path / "features" / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "features" / "b.npy", np.zeros((3, 7), np.float32))
    with pytest.raises(BadFolder, match="no array file"):
        folder.load_features("a")
    with pytest.raises(BadDescriptors, match="256"):
        folder.load_features("b")
