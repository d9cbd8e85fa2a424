"""From video files to segments and claims, through the command line and real workers."""

from __future__ import annotations

import os
import wave
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Site
from vcl_plugin.demo.footage import Clip, render_edit, render_reference

SIZE = (160, 120)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two references, and an upload that shows 14 seconds of the first after other footage."""
    folder = tmp_path_factory.mktemp("films")
    made = {
        name: render_reference(folder / f"{name}.mp4", seed=seed, seconds=24, size=SIZE)
        for seed, name in enumerate(("harbour", "garden", "filler"), start=1)
    }
    made["upload"] = render_edit(
        folder / "upload.mp4",
        [Clip(made["filler"], 2, 8, is_copy=False), Clip(made["harbour"], 5, 19)],
        size=SIZE,
    )
    return made


@pytest.fixture(scope="module")
def bad_files(films: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A path for each way in which a video can be none, by its reason code."""
    folder = tmp_path_factory.mktemp("bad")
    whole = films["garden"].read_bytes()
    (folder / "empty.mp4").touch()
    (folder / "words.mp4").write_text("this is a text, whatever its name says\n" * 40)
    (folder / "cut.mp4").write_bytes(whole[: len(whole) // 3])
    (folder / "folder.mp4").mkdir()
    os.mkfifo(folder / "pipe.mp4")
    with wave.open(str(folder / "sound.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"\x00\x10" * 8000)
    return {
        "missing": folder / "gone.mp4",
        "empty": folder / "empty.mp4",
        "not_video": folder / "words.mp4",
        "truncated": folder / "cut.mp4",
        "is_directory": folder / "folder.mp4",
        "unreadable": folder / "pipe.mp4",
        "no_video_stream": folder / "sound.wav",
    }


@pytest.fixture(scope="module")
def references(site: Site, films: dict[str, Path]) -> dict[str, str]:
    """Both films registered and described; name to id."""
    refused = site.vcl_json("search", films["upload"], "--wait", expect=1)
    assert (refused["status"], refused["reason"]) == ("failed", "empty_index")
    ids = {}
    for owner, name in (("Northlight", "harbour"), ("Ostrava", "garden")):
        site.vcl_json("asset", "add", name.title(), "--owner", owner)
        [row] = site.vcl_json("reference", "add", films[name], "-a", name.title(), "--wait")
        assert (row["status"], row["reason"]) == ("ready", None)
        ids[name] = row["id"]
    return ids


def test_a_planted_copy_is_found_claimed_and_reported(
    site: Site, films: dict[str, Path], references: dict[str, str]
):
    found = site.vcl_json("search", films["upload"], "--wait")
    assert (found["status"], found["pairs_left"], found["quarantined"]) == ("done", 0, [])
    overlaps = [
        min(each["query_end"], 20) - max(each["query_start"], 6)
        for each in found["segments"]
        if each["reference_id"] == references["harbour"]
    ]
    assert max(overlaps) > 7, "at least half of the fourteen planted seconds"
    [claim] = [each for each in found["claims"] if each["asset"] == "Harbour"]
    assert (claim["owner"], claim["status"]) == ("Northlight", "potential")
    assert (claim["id"],) in site.sql("SELECT claim_id FROM infringing_segments")
    report = site.vcl("report", "infringing_seconds_by_asset", "--format", "csv")
    assert "Northlight,Harbour" in report.stdout


def test_every_bad_file_has_its_reason_and_spoils_no_good_one(
    site: Site, references: dict[str, str], bad_files: dict[str, Path], films: dict[str, Path]
):
    rows = site.vcl_json(
        *("reference", "add", *bad_files.values(), films["garden"], "-a", "Garden", "--wait"),
        expect=1,
    )
    assert [row["reason"] for row in rows[:-1]] == list(bad_files)
    assert all(row["status"] == "failed" and row["message"] for row in rows[:-1])
    assert (rows[-1]["status"], rows[-1]["id"]) == ("ready", references["garden"])


@pytest.mark.parametrize("code", ["missing", "truncated"])
@pytest.mark.usefixtures("references")
def test_a_search_of_a_bad_file_ends_with_the_reason(
    site: Site, bad_files: dict[str, Path], code: str
):
    done = site.vcl("search", bad_files[code], "--wait")
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"({code})" in done.stderr


def test_a_video_of_one_frame_is_searched_like_any_other(
    site: Site, references: dict[str, str], tmp_path: Path
):
    path = render_reference(tmp_path / "still.mp4", seed=9, seconds=0.1, size=SIZE)
    found = site.vcl_json("search", path, "--wait")
    assert (found["status"], found["pairs_total"]) == ("done", len(references))


def test_the_same_file_under_another_name_is_the_same_video_and_a_reference_says_so(
    site: Site, films: dict[str, Path], references: dict[str, str], tmp_path: Path
):
    copy = tmp_path / "renamed.mp4"
    copy.write_bytes(films["harbour"].read_bytes())
    found = site.vcl_json("search", copy, "--wait")
    assert found["query_id"] == references["harbour"]
    assert (found["status"], found["reason"]) == ("done", "query_is_reference")
    assert references["harbour"] not in {each["reference_id"] for each in found["segments"]}


@pytest.mark.usefixtures("references")
def test_status_tells_what_runs_and_how_much_there_is(site: Site):
    status = site.vcl_json("status")
    assert [each["running"] for each in status["services"]] == [True, True]
    assert status["problem"] is None
    assert status["counts"]["references"] >= 2
    assert status["counts"]["pairs_running"] == 0
