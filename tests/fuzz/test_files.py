"""Spoilt files: weights, descriptors, benchmark folders. Each is read, or refused in our words."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import save
from safetensors.torch import save as save_torch

from retrieval.arrays import as_descriptors
from retrieval.errors import BadDescriptors, MissingWeights, RetrievalError
from retrieval.store import MAX_FRAMES, Store, read_descriptors
from tests.fuzz.examples import fuzzed, spoilt, texts, values
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.model.checkpoint import FORMAT, load_transvcl, read_facts
from vcl_plugin.model.config import SMALL

ROWS = np.eye(3, 256, dtype=np.float32)


def as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def as_pth(content: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


NPY = as_npy(ROWS)
STORED = save({"descriptors": ROWS.astype(np.float16), "low_information": np.zeros(3, bool)})
VIEWED = save(
    {
        "descriptors": ROWS.astype(np.float16),
        "parts": ROWS.astype(np.float16),
        "part_frames": np.arange(3, dtype=np.int32),
        "part_tracks": np.zeros(3, np.int32),
        "mirrored": ROWS.astype(np.float16),
        "middle": ROWS.astype(np.float16),
        "aspect_frames": np.arange(3, dtype=np.int32),
        "aspect_stretches": np.zeros(3, np.int32),
    }
)
WEIGHTS = save_torch(
    {"a": torch.zeros(3)},
    {"format": FORMAT, "config": SMALL.to_json(), "fingerprint": "0", "facts": "{}"},
)
PTH = as_pth({"model": {"a": torch.zeros(3)}})


@fuzzed
@given(
    st.data(),
    st.sampled_from([(NPY, "npy"), *((each, "safetensors") for each in (STORED, VIEWED, NPY))]),
)
def test_spoilt_descriptors_are_an_array_or_refused(
    tmp_path: Path, data: st.DataObject, kind: tuple[bytes, str]
) -> None:
    path = tmp_path / f"a.{kind[1]}"
    path.write_bytes(data.draw(spoilt(kind[0])))
    try:
        stored = read_descriptors(path)
    except RetrievalError as error:
        assert str(path) in str(error)
        return
    assert stored.descriptors.shape[1] == 256
    assert np.isfinite(stored.descriptors).all()
    assert len(stored.low_information) == stored.frames
    assert np.isfinite(stored.views.vectors).all()
    assert set(stored.views.frames.tolist()) <= set(range(stored.frames))


def test_an_array_that_claims_to_be_giant_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (MAX_FRAMES + 1, 256)}
        )
        file.truncate(file.tell() + (MAX_FRAMES + 1) * 1024)  # a hole: it takes no room on disk
    with pytest.raises(BadDescriptors) as caught:
        read_descriptors(path)
    assert caught.value.code == "too_long"


@fuzzed
@given(texts)
@example("file://[")  # once a ValueError of urllib's
@example("x" * 5000)  # once an OSError: a name beyond measure
@example("file:///a\0b")
@example("http://169.254.169.254/latest/meta-data")
def test_any_location_of_descriptors_is_read_or_refused(tmp_path: Path, location: str) -> None:
    store = Store(tmp_path / "store", [tmp_path])
    for read in (read_descriptors, store.read, store.has):
        try:
            read(location)
        except RetrievalError as error:
            assert str(error)


@fuzzed
@given(values)
def test_any_value_is_descriptors_or_refused(value: Any) -> None:
    try:
        rows = as_descriptors(value)
    except BadDescriptors:
        return
    assert rows.shape[1:] == (256,)


@fuzzed
@given(st.data(), st.sampled_from([(WEIGHTS, "safetensors"), (PTH, "pth"), (WEIGHTS, "pth")]))
def test_spoilt_weights_are_refused_in_our_words(
    tmp_path: Path, data: st.DataObject, kind: tuple[bytes, str]
) -> None:
    path = tmp_path / f"w.{kind[1]}"
    path.write_bytes(data.draw(spoilt(kind[0])))
    with pytest.raises(MissingWeights) as caught:
        load_transvcl(path)
    assert str(path) in str(caught.value)


@fuzzed
@given(
    st.one_of(
        values.map(json.dumps),
        texts,
        st.dictionaries(
            st.sampled_from([*json.loads(SMALL.to_json())]), values, min_size=1, max_size=3
        ).map(lambda spoilt: json.dumps(json.loads(SMALL.to_json()) | spoilt)),
    ).filter(lambda text: text.isprintable()),
    st.sampled_from(["{}", "[]", "{", "5", "null"]),
)
@example(SMALL.to_json(), "{")  # once a JSONDecodeError: the facts were not looked at
@example(SMALL.to_json().replace('"heads": 8', '"heads": 0'), "{}")  # once a ZeroDivisionError
@example(SMALL.to_json().replace('"depth": 0.33', '"depth": 1e9'), "{}")
@example("[" * 100_000, "{}")  # once a RecursionError
def test_any_config_of_weights_is_refused_in_our_words(
    tmp_path: Path, config: str, facts: str
) -> None:
    path = tmp_path / "w.safetensors"
    metadata = {"format": FORMAT, "config": config, "fingerprint": "0", "facts": facts}
    path.write_bytes(save_torch({"a": torch.zeros(3, dtype=torch.bfloat16)}, metadata))
    for read in (load_transvcl, read_facts):
        with pytest.raises(MissingWeights):
            read(path)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (Path.touch, (tmp_path / "was-run",))  # type: ignore[return-value]

    path = tmp_path / "w.pth"
    path.write_bytes(as_pth({"model": Trap()}))
    with pytest.raises(MissingWeights, match="without running its code"):
        load_transvcl(path)
    assert not (tmp_path / "was-run").exists()


PAIRS = b"query_id,reference_id\r\nq,r\r\na,b\r\n"
LABELS = {"q-r": [[0, 0, 5, 5]]}


def read_folder(path: Path, pairs: bytes, labels: str, topics: str, features: bytes) -> None:
    (path / "features").mkdir(exist_ok=True)
    (path / "pairs.csv").write_bytes(pairs)
    (path / "labels.json").write_text(labels, encoding="utf-8", errors="surrogatepass")
    (path / "topics.json").write_text(topics, encoding="utf-8", errors="surrogatepass")
    (path / "details.json").write_text(topics, encoding="utf-8", errors="surrogatepass")
    (path / "features" / "q.npy").write_bytes(features)
    folder = Folder(path)
    try:
        for pair in folder.pairs:
            assert all(len(box) == 4 for box in pair.truth)
            for video_id in (pair.query_id, pair.reference_id):
                folder.feature_path(video_id)
        folder.load_features("q")
    except RetrievalError as error:
        assert str(error)


@fuzzed
@given(st.data(), values, values)
def test_a_spoilt_benchmark_folder_is_read_or_refused(
    tmp_path: Path, data: st.DataObject, label: Any, topic: Any
) -> None:
    read_folder(
        tmp_path,
        data.draw(spoilt(PAIRS)),
        json.dumps({"q-r": label, "a-b": [label]}),
        json.dumps({"q-r": topic, "q": topic}),
        data.draw(spoilt(NPY)),
    )


@pytest.mark.parametrize(
    ("pairs", "labels", "topics"),
    [
        (b"query_id,reference_id\r\n\xff,r\r\n", "{}", "{}"),  # once a UnicodeDecodeError
        (b"query_id,reference_id\r\n" + b"x" * 200_000 + b",r\r\n", "{}", "{}"),  # a csv.Error
        (PAIRS, '{"q-r": 5}', "{}"),  # once a TypeError
        (PAIRS, '{"q-r": [[0, 0, 1e999, 1%s]]}' % ("0" * 400), "{}"),  # an OverflowError
        (PAIRS, "{}", '{"q-r": 5}'),  # once an AttributeError
        (PAIRS, "[" * 100_000, "{}"),  # a RecursionError
        ("query_id,reference_id\r\n{},r\r\n".format("日" * 150).encode(), "{}", "{}"),  # an OSError
    ],
)
def test_folders_that_once_ended_in_a_traceback_do_no_more(
    tmp_path: Path, pairs: bytes, labels: str, topics: str
) -> None:
    read_folder(tmp_path, pairs, labels, topics, NPY)
