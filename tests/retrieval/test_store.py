"""Descriptor files are whole or absent, and a bad one is refused with a sentence."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sqlalchemy import Engine

from retrieval.describe.views import ViewKind, Views, join_views, number_runs
from retrieval.errors import (
    BadDescriptors,
    BadSetting,
    NotFound,
    RetrievalError,
    ServiceUnavailable,
)
from retrieval.identity import MARK, StoreIdentity
from retrieval.index.snapshots import new_snapshot
from retrieval.settings import Settings
from retrieval.store import LAYOUT, Store, read_descriptors, write_atomically


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


def some_views() -> Views:
    """Two parts, and a scene mirrored and by its middle."""
    rows, scene = unit_rows(11, seed=3), [3, 4, 5]
    return join_views(
        [
            number_runs(ViewKind.PART, [([2, 3, 4], rows[:3]), ([3, 4], rows[3:5])]),
            number_runs(ViewKind.MIRRORED, [(scene, rows[5:8])]),
            number_runs(ViewKind.MIDDLE, [(scene, rows[8:])]),
        ]
    )


def arrays_of(views: Views) -> dict[str, np.ndarray]:
    """What a file holds of them, by the names that files have had since there were such views."""
    parts, mirrored, middle = (views.kinds == kind for kind in ViewKind)
    return {
        "parts": views.vectors[parts].astype(np.float16),
        "part_frames": views.frames[parts],
        "part_tracks": views.runs[parts],
        "mirrored": views.vectors[mirrored].astype(np.float16),
        "middle": views.vectors[middle].astype(np.float16),
        "aspect_frames": views.frames[middle],
        "aspect_stretches": views.runs[middle],
    }


def write_by_hand(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """A file as an earlier release wrote it: 9 frames, and these arrays beside them."""
    whole = {"descriptors": unit_rows(9).astype(np.float16), "low_information": np.zeros(9, bool)}
    save_file(whole | arrays, path, metadata={"fingerprint": "lite0-1", "video": "v"})
    return path


def assert_same_views(found: Views, expected: Views) -> None:
    assert np.abs(found.vectors - expected.vectors).max() < 5e-4
    assert (found.vectors.dtype, found.kinds.dtype) == (np.float32, np.uint8)
    for name in ("frames", "kinds", "runs"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


def test_views_lie_beside_the_whole_frames(tmp_path: Path):
    store, views = Store(tmp_path), some_views()
    found = store.read(store.write("v", "lite0-1", unit_rows(9), None, views))
    assert found.frames == 9
    assert_same_views(found.views, views)
    assert len(store.read(store.write("w", "lite0-1", unit_rows(9))).views) == 0


def test_a_file_of_an_earlier_release_is_read(tmp_path: Path):
    views = some_views()
    found = read_descriptors(write_by_hand(tmp_path / "old.safetensors", arrays_of(views)))
    assert (found.fingerprint, found.frames) == ("lite0-1", 9)
    assert_same_views(found.views, views)


def test_an_earlier_release_can_read_what_is_written(tmp_path: Path):
    views = some_views()
    written = load_file(tmp_path / Store(tmp_path).write("v", "lite0-1", unit_rows(9), views=views))
    expected = load_file(write_by_hand(tmp_path / "old.safetensors", arrays_of(views)))
    assert written.keys() == expected.keys()
    for name, array in expected.items():
        assert written[name].dtype == array.dtype, name
        assert np.array_equal(written[name], array), name


@pytest.mark.parametrize("kinds", [[ViewKind.PART], [ViewKind.MIRRORED, ViewKind.MIDDLE]])
def test_a_file_may_hold_parts_or_scenes_alone(tmp_path: Path, kinds: list[ViewKind]):
    held = {name for kind in kinds for name in LAYOUT[kind]}
    arrays = {name: each for name, each in arrays_of(some_views()).items() if name in held}
    path = write_by_hand(tmp_path / "some.safetensors", arrays)
    assert set(read_descriptors(path).views.kinds.tolist()) == set(kinds)


@pytest.mark.parametrize(
    "middle", [[], [([3, 4], unit_rows(2))], [([3, 4], unit_rows(2)), ([5], unit_rows(1))]]
)
def test_scenes_are_mirrored_and_seen_by_their_middle_or_not_written(tmp_path: Path, middle: list):
    mirrored = number_runs(ViewKind.MIRRORED, [([3, 4, 5], unit_rows(3))])
    views = join_views([mirrored, number_runs(ViewKind.MIDDLE, middle)])
    with pytest.raises(BadDescriptors, match="describe each scene both ways"):
        Store(tmp_path).write("v", "lite0-1", unit_rows(9), views=views)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"part_frames": np.array([2, 3, 9, 3, 4], np.int32)},
        {"part_frames": np.array([2, 3, -1, 3, 4], np.int32)},
        {"part_frames": np.zeros(0, np.int32)},
        {"part_tracks": np.zeros(2, np.int32)},
        {"parts": np.ones((46, 256), np.float16)},
        {"mirrored": np.ones((46, 256), np.float16)},
        {"middle": np.ones((2, 256), np.float16)},
        {"aspect_frames": np.array([3, 4, 9], np.int32)},
        {"aspect_frames": np.array([-1, 4, 5], np.int32)},
        {"aspect_stretches": np.zeros(4, np.int32)},
    ],
    ids=lambda spoilt: next(iter(spoilt)),
)
def test_views_that_do_not_fit_the_frames_are_refused(tmp_path: Path, spoilt: dict):
    arrays = arrays_of(some_views()) | spoilt
    path = write_by_hand(tmp_path / "spoilt.safetensors", arrays)
    with pytest.raises(BadDescriptors, match="do not fit"):
        read_descriptors(path)


@pytest.mark.parametrize("video_id", ["../../etc/passwd", "a b/c", "ü" * 300, "x\n", "?#%20"])
def test_an_id_may_hold_any_character(tmp_path: Path, video_id: str):
    store = Store(tmp_path / "store")
    key = store.write(video_id, "lite0-1", unit_rows(2))
    path = store.find(key)
    assert path == store.path_of(video_id, "lite0-1") == tmp_path / "store" / key
    assert store.has(key)
    assert path != store.path_of(video_id + "x", "lite0-1")
    assert path != store.path_of(video_id, "lite0-2")


def test_a_row_says_which_file_and_not_where_a_machine_has_its_store(tmp_path: Path):
    key = Store(tmp_path / "here").write("v", "lite0-1", unit_rows(2))
    assert not Path(key).is_absolute()
    (tmp_path / "here").rename(tmp_path / "there")
    moved = Store(tmp_path / "there")
    assert moved.has(key)
    assert moved.read(key, "lite0-1").frames == 2
    # A row of an earlier release: the whole path, of another machine or before the move.
    before = tmp_path / "here" / key
    assert moved.has(before)
    assert moved.read(str(before), "lite0-1").frames == 2


@pytest.mark.parametrize("key", ["../secret.npy", "lite0-1/../../secret.npy"])
def test_no_key_leads_out_of_the_store(tmp_path: Path, key: str):
    np.save(tmp_path / "secret.npy", unit_rows(2))
    store = Store(tmp_path / "store")
    with pytest.raises(NotFound, match="no key of the store"):
        store.read(key)


def test_a_foreign_file_that_is_missing_is_not_looked_for_in_the_store(tmp_path: Path):
    store = Store(tmp_path / "store")
    store.write("v", "lite0-1", unit_rows(2))
    for path in (tmp_path / "v.npy", tmp_path / "aa" / f"{'ab' * 32}.safetensors"):
        assert not store.has(path)
        assert store.find(path) == path


def test_a_disk_without_room_is_told_as_something_that_can_come_back(tmp_path: Path, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ServiceUnavailable, match=r"no room for .*No space left") as told:
        Store(tmp_path).write("v", "lite0-1", unit_rows(2))
    assert told.value.code == "store_full"
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_a_disk_that_is_really_full_loses_no_file_and_takes_new_ones_with_room(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount to make a small disk with")
    if done.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    try:
        store = Store(disk)
        first = store.write("first", "lite0-1", unit_rows(40))
        (disk / "filler").write_bytes(bytes(28 << 10))
        for name in ("first", "second"):
            with pytest.raises(ServiceUnavailable, match=r"no room for .*No space left") as told:
                store.write(name, "lite0-1", unit_rows(60))
            assert told.value.code == "store_full"
        assert store.read(first).frames == 40
        assert [each for each in disk.rglob("*") if each.is_file()] == [
            disk / "filler",
            disk / first,
        ]
        (disk / "filler").unlink()
        assert store.read(store.write("second", "lite0-1", unit_rows(60))).frames == 60
    finally:
        subprocess.run(["umount", str(disk)], check=True)


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


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize(
    ("mode", "file", "folder"),
    [(None, 0o640, 0o750), ("600", 0o600, 0o700), ("0644", 0o644, 0o755)],
)
def test_who_may_read_what_a_worker_wrote_is_a_setting_and_no_accident_of_its_umask(
    db: Engine, tmp_path: Path, umask: int, mode: str | None, file: int, folder: int
):
    settings = Settings(home=tmp_path, **({} if mode is None else {"file_mode": mode}))
    before = os.umask(umask)
    try:
        identity = StoreIdentity(db, settings.store_dir, settings.mode)
        store = Store(settings.store_dir, check=identity.check, mode=settings.mode)
        path = store.find(store.write("v", "lite0-1", unit_rows(2)))
        with new_snapshot(settings.index_dir, "key", 1, settings.mode) as snapshot:
            (snapshot / "videos.json").touch()
    finally:
        os.umask(before)
    for each in (path, settings.store_dir / MARK, snapshot / "videos.json"):
        assert each.stat().st_mode & 0o777 == file, each
    for each in (path.parent, path.parent.parent, settings.store_dir, snapshot):
        assert each.stat().st_mode & 0o777 == folder, each


@pytest.mark.parametrize("mode", ["777", "rw", "200", "0o640"])
def test_a_mode_that_makes_no_sense_is_refused(mode: str):
    with pytest.raises(BadSetting, match=r"VCL_FILE_MODE.*640 for the group"):
        Settings(file_mode=mode)


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
    with pytest.raises(BadDescriptors, match=r"\(2,\), which do not fit its 3 rows"):
        read_descriptors(tmp_path / "a.safetensors")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_refused_with_what_to_check(tmp_path: Path):
    path = tmp_path / Store(tmp_path).write("v", "lite0-1", unit_rows(2))
    path.chmod(0)
    with pytest.raises(RetrievalError, match="permissions"):
        read_descriptors(path)


def sparse_array(path: Path, shape: tuple[int, ...], kind: str = "<f4") -> Path:
    """A file of a few kilobytes on disk that claims to be, and reads as, an array of that shape."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(
            file, {"descr": kind, "fortran_order": False, "shape": shape}
        )
        file.truncate(file.tell() + int(np.prod(shape)) * np.dtype(kind).itemsize)
    return path


def sparse_tensors(path: Path, shapes: dict[str, tuple[int, ...]]) -> Path:
    """The same as safetensors: a header, and nothing where the float32 numbers should be."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(file.tell() + end)
    return path


@pytest.mark.parametrize(
    ("shape", "kind", "code"),
    [
        ((10_000, 7_500), "<f4", "wrong_dimension"),
        ((300, 256, 1_000), "<f4", "wrong_dimension"),
        ((75_000_000,), "<f4", "wrong_dimension"),
        ((4, 256), "<U60000", "not_an_array"),
        ((300_000, 256), "<f4", "too_long"),
    ],
)
def test_a_sparse_array_does_not_fill_the_memory(
    tmp_path: Path, shape: tuple[int, ...], kind: str, code: str
):
    path = sparse_array(tmp_path / "a.npy", shape, kind)
    assert refused_within(path, megabytes=10) == code


@pytest.mark.parametrize(
    ("shapes", "code"),
    [
        ({"descriptors": (10_000, 7_500)}, "wrong_dimension"),
        ({"descriptors": (2, 256), "low_information": (75_000_000,)}, "bad_descriptors"),
        ({"descriptors": (2, 256), "parts": (4, 20_000_000)}, "wrong_dimension"),
        (
            {"descriptors": (2, 256), "parts": (1, 256), "part_frames": (75_000_000,)},
            "bad_descriptors",
        ),
    ],
)
def test_a_sparse_file_of_the_store_does_not_fill_the_memory(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], code: str
):
    shapes = {"part_tracks": (1,), **shapes}
    path = sparse_tensors(tmp_path / "a.safetensors", shapes)
    assert refused_within(path, megabytes=10) == code


def refused_within(path: Path, megabytes: int) -> str:
    """The code of the refusal, which took no more memory than that."""
    tracemalloc.start()
    try:
        with pytest.raises(BadDescriptors) as refused:
            read_descriptors(path)
        assert tracemalloc.get_traced_memory()[1] < megabytes * 1_000_000
    finally:
        tracemalloc.stop()
    return refused.value.code
