"""Descriptor files are whole or absent, and a bad one is refused with a sentence."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from retrieval.errors import BadDescriptors, NotFound, RetrievalError, ServiceUnavailable
from retrieval.store import Aspects, Parts, Store, read_descriptors, write_atomically


def unit_rows(count: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((count, 256))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_what_is_written_is_read_again_with_flags_and_fingerprint(tmp_path: Path):
    store, rows = Store(tmp_path), unit_rows(9)
    flags = np.arange(9) % 2 == 0
    found = store.read(store.write("v", "lite0-1", rows, flags))
    assert np.abs(found.descriptors - rows).max() < 5e-4
    assert found.descriptors.dtype == np.float32
    assert found.low_information.tolist() == flags.tolist()
    assert (found.fingerprint, found.frames) == ("lite0-1", 9)


def test_parts_of_pictures_lie_beside_the_whole_ones(tmp_path: Path):
    store, vectors = Store(tmp_path), unit_rows(5, seed=3)
    parts = Parts(vectors, np.array([2, 3, 4, 3, 4]), np.array([0, 0, 0, 1, 1]))
    found = store.read(store.write("v", "lite0-1", unit_rows(9), None, parts))
    assert found.frames == 9
    assert np.abs(found.parts.vectors - vectors).max() < 5e-4
    assert found.parts.frames.tolist() == [2, 3, 4, 3, 4]
    assert found.parts.tracks.tolist() == [0, 0, 0, 1, 1]
    assert len(store.read(store.write("w", "lite0-1", unit_rows(9))).parts) == 0


def test_parts_of_frames_that_are_not_there_are_refused(tmp_path: Path):
    store = Store(tmp_path)
    parts = Parts(unit_rows(1), np.array([9]), np.array([0]))
    with pytest.raises(BadDescriptors, match="do not fit its 9 frames"):
        store.read(store.write("v", "lite0-1", unit_rows(9), None, parts))


def test_other_aspects_of_still_scenes_lie_beside_the_whole_frames(tmp_path: Path):
    store, mirrored, middle = Store(tmp_path), unit_rows(4, seed=3), unit_rows(4, seed=4)
    aspects = Aspects(mirrored, middle, np.array([1, 2, 5, 6]), np.array([0, 0, 1, 1]))
    found = store.read(store.write("v", "lite0-1", unit_rows(9), aspects=aspects)).aspects
    assert np.abs(found.mirrored - mirrored).max() < 5e-4
    assert np.abs(found.middle - middle).max() < 5e-4
    assert found.frames.tolist() == [1, 2, 5, 6]
    assert found.stretches.tolist() == [0, 0, 1, 1]
    assert len(store.read(store.write("w", "lite0-1", unit_rows(9))).aspects) == 0


@pytest.mark.parametrize(("rows", "frame"), [(1, 9), (1, -1), (2, 3)])
def test_aspects_that_do_not_fit_the_frames_are_refused(tmp_path: Path, rows: int, frame: int):
    store = Store(tmp_path)
    aspects = Aspects(unit_rows(1), unit_rows(rows), np.array([frame]), np.array([0]))
    with pytest.raises(BadDescriptors, match="do not fit its 9 frames"):
        store.read(store.write("v", "lite0-1", unit_rows(9), aspects=aspects))


@pytest.mark.parametrize("video_id", ["../../etc/passwd", "a b/c", "ü" * 300, "x\n", "?#%20"])
def test_an_id_may_hold_any_character(tmp_path: Path, video_id: str):
    store = Store(tmp_path / "store")
    path = store.write(video_id, "lite0-1", unit_rows(2))
    assert path.is_relative_to(tmp_path / "store")
    assert store.has(path)
    assert path != store.path_of(video_id + "x", "lite0-1")
    assert path != store.path_of(video_id, "lite0-2")


def test_a_disk_without_room_is_told_as_something_that_can_come_back(tmp_path: Path, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ServiceUnavailable, match=r"no room for .*No space left") as told:
        Store(tmp_path).write("v", "lite0-1", unit_rows(2))
    assert told.value.code == "store_full"
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_a_writer_that_dies_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch):
    path = tmp_path / "folder" / "file"
    write_atomically(path, b"old")

    def die(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", die)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_other_accounts_of_the_machine_can_read_what_a_worker_wrote(tmp_path: Path):
    path = Store(tmp_path).write("v", "lite0-1", unit_rows(2))
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_plain_array_and_a_file_url_are_welcome(tmp_path: Path):
    rows = unit_rows(5)
    path = tmp_path / "with space é.npy"
    np.save(path, rows)
    for location in (path, str(path), path.as_uri(), f"file://localhost{path.as_uri()[7:]}"):
        found = read_descriptors(location)
        assert np.array_equal(found.descriptors, rows)
        assert not found.low_information.any()
        assert found.fingerprint is None


@pytest.mark.parametrize("location", ["https://host/a.npy", "s3://bucket/a.npy", "file://host/a"])
def test_a_url_out_of_reach_is_refused_with_what_would_do(location: str):
    with pytest.raises(NotFound, match=r"a path or a file:// URL"):
        read_descriptors(location)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path):
    for path in (tmp_path / "gone.npy", tmp_path / "gone.safetensors", tmp_path):
        with pytest.raises(NotFound, match="no descriptor file"):
            read_descriptors(path)


def bad_files() -> dict[str, bytes]:
    return {
        "empty.npy": b"",
        "text.npy": b"no array at all",
        "magic_only.npy": b"\x93NUMPY",
        "wild_header.npy": b"\x93NUMPY\x01\x00\x10\x00{'descr': ([}\n\n\n\n",
        "archive.npy": b"PK\x03\x04 not really",
        "pickle.npy": b"\x80\x04K\x01.",
        "empty.safetensors": b"",
        "text.safetensors": b"no tensors at all, just words",
        "long_header.safetensors": b"\xff" * 64,
        "other.bin": b"\x00" * 10,
    }


@pytest.mark.parametrize("name", bad_files())
def test_a_file_of_other_bytes_is_refused_by_name(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes(bad_files()[name])
    with pytest.raises(BadDescriptors, match=name) as caught:
        read_descriptors(path)
    assert caught.value.code == "not_an_array"


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (np.zeros((3, 128), np.float32), "wrong_dimension"),
        (np.zeros(256, np.float32), "wrong_dimension"),
        (np.zeros((0, 256), np.float32), "no_frames"),
        (np.full((2, 256), np.nan, np.float32), "not_finite"),
        (np.full((2, 256), "x"), "not_an_array"),
    ],
)
def test_an_array_that_cannot_be_descriptors_has_its_code(tmp_path: Path, array, code: str):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(BadDescriptors) as caught:
        read_descriptors(tmp_path / "a.npy")
    assert caught.value.code == code


def test_tensors_of_other_names_are_listed_in_the_refusal(tmp_path: Path):
    save_file({"weights": np.zeros((2, 2), np.float32)}, tmp_path / "a.safetensors")
    with pytest.raises(BadDescriptors, match="holds no `descriptors` but weights"):
        read_descriptors(tmp_path / "a.safetensors")


def test_flags_must_fit_the_frames(tmp_path: Path):
    with pytest.raises(BadDescriptors, match="3 frames and flags for 2"):
        Store(tmp_path).write("v", "lite0-1", unit_rows(3), np.zeros(2, dtype=bool))
    save_file(
        {"descriptors": unit_rows(3), "low_information": np.zeros(2, dtype=bool)},
        tmp_path / "a.safetensors",
    )
    with pytest.raises(BadDescriptors, match="flags 2 frames but describes 3"):
        read_descriptors(tmp_path / "a.safetensors")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_refused_with_what_to_check(tmp_path: Path):
    path = Store(tmp_path).write("v", "lite0-1", unit_rows(2))
    path.chmod(0)
    with pytest.raises(RetrievalError, match="permissions"):
        read_descriptors(path)
