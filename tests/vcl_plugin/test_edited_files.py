"""The benchmark of edited files: what it plants, and how far off it calls an answer."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from vcl_plugin.evaluation.sources import Source

SOURCE = Path(__file__).parents[2] / "benchmarks" / "edited_files.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("edited_files", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["edited_files"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def video(name: str, seconds: int, group: str) -> Source:
    return Source(name=name, kind="video", seconds=seconds, group=group, path=Path(name))


def test_every_long_video_is_edited_in_every_way_beside_foreign_footage(benchmark):
    sources = [video("a", 30, "one"), video("b", 30, "one"), video("c", 40, "two")]
    uploads = benchmark.plan_uploads([*sources, video("short", 5, "three")])
    assert len(uploads) == 3 * len(benchmark.EDITS)
    groups = {each.path: each.group for each in sources}
    for upload in uploads:
        before, copied, after = upload.clips
        assert copied.source == upload.reference
        assert groups[before.source] == groups[after.source] != groups[copied.source]
    truths = {each.edit: each.truth for each in uploads if each.reference == Path("a")}
    assert truths["plain"] == (10.0, 5.0, 30.0, 25.0)
    assert truths["sped-up"] == pytest.approx((10.0, 5.0, 10.0 + 20 / 1.5, 25.0))


def test_worst_end_is_that_of_the_nearest_segment(benchmark):
    truth = (10.0, 5.0, 30.0, 25.0)
    found = [((50.0, 5.0, 60.0, 15.0), 0.9), ((10.5, 5.0, 30.0, 26.5), 0.6)]
    assert benchmark.worst_end(found, truth) == 1.5
    assert benchmark.worst_end([], truth) is None


def test_segments_are_read_as_the_command_line_prints_them(benchmark):
    row = {"query_start": 1.0, "query_end": 3.0, "reference_start": 2.0, "reference_end": 4.0}
    printed = json.dumps([{**row, "score": 0.5, "is_reversed": False, "speed": 1.0}])
    assert benchmark.read_segments(printed) == [((1.0, 2.0, 3.0, 4.0), 0.5)]
