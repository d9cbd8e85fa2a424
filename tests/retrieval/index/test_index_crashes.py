"""The index in real processes: killed at every instant, and searched while it changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.retrieval.index.index_site import open_replica, plant

ROOT = Path(__file__).parents[3]


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.retrieval.index.index_site", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("action", ["add", "save", "build", "random"])
def test_nothing_is_lost_when_a_process_is_killed(database: str, tmp_path: Path, action: str):
    child = start("crash", database, tmp_path, action)
    output, _ = child.communicate()
    assert child.returncode == 0, output
    assert action in output


def test_four_processes_search_rightly_while_a_fifth_adds_and_removes(
    database: str, db: Engine, tmp_path: Path
):
    site = open_replica(db, tmp_path)
    for number in range(8):
        plant(site, f"film-{number}")
    writer = start("write", database, tmp_path)
    readers = [start("read", database, tmp_path) for _ in range(4)]
    try:
        outputs = [reader.communicate()[0] for reader in readers]
    finally:
        (tmp_path / "stop").touch()
        said = writer.communicate()[0]
    assert [reader.returncode for reader in readers] == [0, 0, 0, 0], "\n".join(outputs)
    assert writer.returncode == 0, said
