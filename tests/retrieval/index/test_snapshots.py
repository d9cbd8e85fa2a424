"""Snapshot folders: whole or not there, whoever dies in the middle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from retrieval.index.snapshots import current_facts, current_snapshot, new_snapshot


def write(folder: Path, key: str, seq: int = 1) -> Path:
    with new_snapshot(folder, key, seq) as path:
        (path / "content").write_text(key)
    return path


def test_a_snapshot_is_current_when_it_is_whole(tmp_path: Path):
    with new_snapshot(tmp_path, "key", 7) as path:
        assert current_snapshot(tmp_path, "key") is None
        assert "000000000007" in path.name
    assert current_snapshot(tmp_path, "key") == path


def test_one_that_fails_leaves_the_old_one_and_no_trace(tmp_path: Path):
    old = write(tmp_path, "key")
    with pytest.raises(OSError, match="disk full"), new_snapshot(tmp_path, "key", 2):
        raise OSError("disk full")
    assert current_snapshot(tmp_path, "key") == old
    assert [each for each in tmp_path.iterdir() if each.is_dir()] == [old]


def test_what_a_killed_writer_left_is_cleaned_by_the_next(tmp_path: Path):
    code = (
        "import os, pathlib, signal, sys\n"
        "from retrieval.index.snapshots import new_snapshot\n"
        "with new_snapshot(pathlib.Path(sys.argv[1]), 'key', 1) as path:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    path = write(tmp_path, "key", 2)
    assert [each for each in tmp_path.iterdir() if each.is_dir()] == [path]


def test_a_writer_at_work_and_keys_that_begin_alike_are_left_alone(tmp_path: Path):
    other = write(tmp_path, "key-8-4")
    with new_snapshot(tmp_path, "key", 1) as slow:
        quick = write(tmp_path, "key", 2)
        assert slow.is_dir()
    assert current_snapshot(tmp_path, "key") == slow
    assert current_snapshot(tmp_path, "key-8-4") == other
    assert not quick.exists()


def test_facts_that_cannot_be_read_are_none(tmp_path: Path):
    assert current_facts(tmp_path, "key") is None
    path = write(tmp_path, "key")
    (path / "facts.json").write_text('{"key": "key"}')
    assert current_facts(tmp_path, "key") is None
