"""A catalogue of files, ingested by real workers: duplicates, failures, going on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Site
from vcl_plugin.demo.footage import render_reference


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shelf")
    for seed in (31, 32):
        render_reference(folder / "below" / f"film {seed}.mp4", seed, seconds=6, size=(160, 120))
    shutil.copy(folder / "below" / "film 31.mp4", folder / "again.mkv")
    (folder / "words.mp4").write_text("no video\n" * 50)
    (folder / "empty.avi").touch()
    (folder / "readme.txt").write_text("not looked at")
    return folder


def test_a_folder_is_ingested_once_and_its_failures_are_listed(site: Site, shelf: Path) -> None:
    found = site.vcl_json("ingest", shelf, "--owner", "Shelf Owner", expect=1)
    assert (found["files"], found["ready"], found["duplicates"]) == (5, 2, 1)
    assert found["seconds_of_video"] == pytest.approx(12, abs=0.5)
    reasons = {Path(each["file"]).name: each["reason"] for each in found["failures"]}
    assert reasons == {"words.mp4": "not_video", "empty.avi": "empty"}
    references = [
        row for row in site.vcl_json("reference", "list") if row["owner"] == "Shelf Owner"
    ]
    assert [row["status"] for row in references if row["title"] != "words.mp4"] == ["ready"] * 2


def test_a_second_run_finds_everything_done(site: Site, shelf: Path) -> None:
    before = site.sql("SELECT count(*), max(created_at) FROM videos")
    found = site.vcl_json("ingest", shelf, "--owner", "Shelf Owner", expect=1)
    assert found["ready"] == 2
    assert site.sql("SELECT count(*), max(created_at) FROM videos") == before


def test_what_other_weights_described_is_described_anew(site: Site, shelf: Path) -> None:
    site.vcl_json("ingest", shelf, expect=1)
    changed = site.sql(
        "UPDATE descriptor_sets SET fingerprint = 'older-1' FROM videos"
        " WHERE videos.id = video_id AND is_reference RETURNING video_id"
    )
    found = site.vcl_json("ingest", "--redescribe")
    assert (found["ready"], found["failed"]) == (len(changed), 0)
    kinds = site.sql("SELECT count(DISTINCT fingerprint) FROM descriptor_sets GROUP BY video_id")
    assert kinds.count((2,)) == len(changed) > 0
    assert site.vcl_json("ingest", "--redescribe")["files"] == 0
    assert "name a folder" in site.vcl("ingest").stderr
    assert "name no folder" in site.vcl("ingest", shelf, "--redescribe").stderr


def test_a_folder_without_videos_is_told(site: Site, tmp_path: Path) -> None:
    said = site.vcl("ingest", tmp_path)
    assert said.returncode == 1
    assert "there is no video in" in said.stderr
    assert "is no folder" in site.vcl("ingest", tmp_path / "none").stderr
