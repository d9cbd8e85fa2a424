"""Films of a user become edited uploads with a known truth, and the engine is judged on them."""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np
import pytest
from typer.testing import CliRunner

from retrieval.errors import BadSetting, NotFound
from retrieval.records import Segment, Span
from vcl_plugin.cli.benchmark import app
from vcl_plugin.demo.footage import render_reference
from vcl_plugin.evaluation.films import (
    FAMILIES,
    Upload,
    choose_families,
    plan_uploads,
    render_upload,
)
from vcl_plugin.evaluation.sources import find_videos
from vcl_plugin.evaluation.trial import Finding, overlap, tabulate, worst_end


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    for seed in range(4):
        render_reference(folder / f"film-{seed}.mp4", seed, seconds=14, size=(160, 120))
    return folder


def test_a_seed_gives_one_plan_and_another_seed_another(films: Path) -> None:
    sources = find_videos(films)
    assert plan_uploads(sources, 6, seed=1) == plan_uploads(sources, 6, seed=1)
    assert plan_uploads(sources, 6, seed=1) != plan_uploads(sources, 6, seed=2)


def test_only_copies_have_a_truth_and_fillers_are_no_references(films: Path) -> None:
    plan = plan_uploads(find_videos(films), 10, seed=1)
    registered = {clip.source for clip in plan.references}
    assert {each.kind for each in plan.uploads} >= {"copy", "innocent"}
    for upload in plan.uploads:
        assert bool(upload.truth) == (upload.kind == "copy")
        assert {path for path, _ in upload.truth} <= registered
        fillers = [cut for cut in upload.cuts if cut is not upload.shown]
        assert not {cut.clip.source for cut in fillers} & registered


def test_families_can_be_left_out(films: Path) -> None:
    left = choose_families(["mirror", "inset"])
    assert set(FAMILIES) - set(left) == {"mirror", "inset"}
    plan = plan_uploads(find_videos(films), 40, seed=3, families=["grey", "crop"])
    used = {step.family for upload in plan.uploads for cut in upload.cuts for step in cut.steps}
    assert used == {"grey", "crop"}
    with pytest.raises(BadSetting, match="no edit is named 'sepia'"):
        choose_families(["sepia"])


def test_one_film_is_too_few(films: Path) -> None:
    with pytest.raises(NotFound, match="too few"):
        plan_uploads(find_videos(films)[:1], 5, seed=1)


def first_copy(films: Path, seed: int) -> Upload:
    uploads = plan_uploads(find_videos(films), 10, seed, families=["grey"]).uploads
    return next(each for each in uploads if each.kind == "copy" and each.shown.steps)


def test_an_upload_lasts_as_long_as_its_cuts_and_is_edited_where_it_says(
    films: Path, tmp_path: Path
) -> None:
    upload = first_copy(films, seed=1)
    path = render_upload(upload, tmp_path / "upload.mp4")
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) / 10 == pytest.approx(sum(c.clip.seconds for c in upload.cuts), abs=0.4)
    ((_, segment),) = upload.truth
    colour = np.array([np.ptp(frame.astype(int), axis=2).mean() for frame in frames])
    inside = np.zeros(len(frames), bool)
    inside[int(segment.query.start * 10) + 2 : int(segment.query.end * 10) - 2] = True
    assert colour[inside].max() < 12, "grey"


def test_overlap_and_ends_are_those_of_rectangles() -> None:
    true = Segment(Span(10, 20), Span(0, 10), 1.0)
    assert overlap(true, true) == 1.0
    half = Segment(Span(10, 15), Span(0, 10), 1.0)
    assert overlap(half, true) == 0.5
    assert worst_end(half, true) == 5
    assert overlap(Segment(Span(10, 20), Span(30, 40), 1.0), true) == 0


def finding(**changes: object) -> Finding:
    facts = {
        "upload": "1", "kind": "copy", "families": ("crop",), "seconds": 7.0, "speed": 1.0,
        "is_reversed": False, "pace": "slow", "is_proposed": True, "is_found": True,
        "overlap": 0.9, "off": 0.5, "false": 0,
    }  # fmt: skip
    return Finding(**{**facts, **changes})  # type: ignore[arg-type]


def test_the_table_counts_what_was_found() -> None:
    found = [
        finding(),
        finding(overlap=0.3, off=4.0, speed=2.0),
        finding(is_found=False, overlap=0.0, off=None, families=("grey", "crop")),
        finding(kind="innocent", false=2, families=()),
    ]
    first, by_edit, *_ = tabulate({"tn": (found, 1.25)})
    assert first[2] == [["tn", 3, 3, 2, 1, 1, 1, 1, 2, 1.2]]
    assert by_edit[2] == [["crop", 3, 1], ["grey", 1, 0]]


def test_the_command_makes_searches_and_judges(films: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("VCL_HOME", str(tmp_path / "home"))
    options = ["--uploads", "5", "--methods", "tn", "--without-families", "inset"]
    done = CliRunner().invoke(app, ["films", str(films), str(tmp_path / "out"), *options])
    assert done.exit_code == 0, done.output
    assert "all uploads" in done.output
    truth = json.loads((tmp_path / "out/truth.json").read_text())
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert len(truth) == len(results["tn"]["uploads"]) == 5
    assert sum(each["is_found"] for each in results["tn"]["uploads"]) >= 1
    made = sorted((tmp_path / "out/uploads").iterdir())
    before = [each.stat().st_mtime_ns for each in made]
    CliRunner().invoke(app, ["films", str(films), str(tmp_path / "out"), *options])
    assert [each.stat().st_mtime_ns for each in made] == before, "what is there is kept"
    wrong = CliRunner().invoke(app, ["films", str(films), str(tmp_path / "x"), "--split", "most"])
    assert wrong.exit_code == 2
