"""A rights analyst's day, from a new film to a report that is right again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.conftest import Site, wait_until
from vcl_plugin.demo.footage import Clip, render_edit, render_reference

SIZE = (160, 120)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two films that share seven seconds, and two uploads: one shows the shared part, one more."""
    folder = tmp_path_factory.mktemp("day")
    made = {
        name: render_reference(folder / f"{name}.mp4", seed=seed, seconds=30, size=SIZE)
        for seed, name in ((71, "original"), (72, "other"), (73, "filler"))
    }
    made["sequel"] = render_edit(
        folder / "sequel.mp4",
        [Clip(made["other"], 0, 12), Clip(made["original"], 4, 11)],
        size=SIZE,
    )
    made["teaser"] = render_edit(
        folder / "teaser.mp4",
        [Clip(made["filler"], 0, 6, is_copy=False), Clip(made["original"], 4, 11)],
        size=SIZE,
    )
    made["rip"] = render_edit(
        folder / "rip.mp4",
        [Clip(made["original"], 4, 28), Clip(made["filler"], 10, 14, is_copy=False)],
        size=SIZE,
    )
    return made


def test_an_analysts_day(site: Site, films: dict[str, Path]) -> None:
    # Morning: uploads are searched before anybody protects the film.
    site.vcl("asset", "add", "Unrelated", "--owner", "Nobody Else")
    site.vcl_json("reference", "add", films["other"], "--asset", "Unrelated", "--wait")
    for name in ("teaser", "rip"):
        found = site.vcl_json("search", films[name], "--wait", "--uploader", f"the {name} uploader")
        assert found["claims"] == [], found

    # A film comes in; old uploads are looked through without decoding anything again.
    site.vcl("asset", "add", "Original", "--owner", "Ana")
    [reference] = site.vcl_json(
        "reference", "add", films["original"], "--asset", "Original", "--wait"
    )
    rescanned = site.vcl_json("rescan", reference["id"])
    assert len(rescanned["uploads"]) == 2
    claims = wait_until(lambda: _claims_of(site, "Ana", 2))
    assert {claim["status"] for claim in claims} == {"potential"}
    by_upload = {claim["query"]: claim for claim in claims}

    # The sequel of somebody else shares footage: the owners are told at ingest, nobody is claimed.
    site.vcl("asset", "add", "Sequel", "--owner", "Bo")
    [sequel] = site.vcl_json("reference", "add", films["sequel"], "--asset", "Sequel", "--wait")
    [conflict] = [row for row in sequel["conflicts"] if row["other_owner"] == "Ana"]
    assert conflict["other_start"] == pytest.approx(4, abs=2)
    assert len(site.vcl_json("report", "reference_conflicts", "--owner", "Bo")) >= 1

    # Review: the rip is right, and disputed in vain; the teaser was licensed, so is its footage.
    rip, teaser = by_upload["rip.mp4"]["id"], by_upload["teaser.mp4"]["id"]
    for decision in ("confirm", "dispute", "uphold"):
        assert site.vcl("claims", decision, rip, "--by", "ana").returncode == 0
    refused = site.vcl("claims", "confirm", rip)
    assert refused.returncode == 1
    assert "is upheld and cannot become active; only released" in refused.stderr
    released = site.vcl(
        *("claims", "release", teaser, "--exclude", "--reason", "authorised", "--by", "ana")
    )
    assert released.returncode == 0, released.stderr

    # Evening: searching the teaser again claims nothing, and the report holds the rip alone.
    again = site.vcl_json("search", films["teaser"], "--wait")
    assert f"search={again['search_id']}" in site.worker_log.read_text(encoding="utf-8")
    assert {claim["owner"]: claim["status"] for claim in again["claims"]}["Ana"] == "released"
    report = site.vcl_json("report", "infringing_segments", "--owner", "Ana")
    assert {row["query"] for row in report} == {"rip.mp4"}
    [total] = site.vcl_json("report", "infringing_seconds_by_owner", "--owner", "Ana")
    assert total["uploads"] == 1
    history = site.vcl_json("claims", "show", rip)["events"]
    assert [event["to_status"] for event in history] == [
        *("potential", "active", "disputed", "upheld")
    ]
    assert {event["actor"] for event in history[1:]} == {"ana"}


def _claims_of(site: Site, owner: str, count: int) -> list[dict[str, object]]:
    claims: list[dict[str, object]] = site.vcl_json("claims", "list", "--owner", owner)
    return claims if len(claims) >= count else []
