"""An analyst's commands: policies, shares, allow-lists, exclusions, removals, evidence, reports.

Whatever is refused is refused by a sentence that names the value, and nothing is written.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from retrieval.database import connect, transaction
from retrieval.engine import RetrievalEngine
from retrieval.media.video import hash_file
from retrieval.records import Candidate
from retrieval.settings import load_settings
from retrieval.work import catalogue, pairs, searches
from tests.vcl_plugin.cli.conftest import Said
from tests.vcl_plugin.world import METHOD, add_reference, add_upload, record, segment
from vcl_plugin.claims.segments import Outcome, record_segments
from vcl_plugin.claims.settlement import settle_claims

pytestmark = pytest.mark.usefixtures("site_environment")
Vcl = Callable[..., Said]

TABLES = (
    *("policies", "policy_rules", "asset_owners", "allowances", "reference_exclusions"),
    *("owners", "assets", "claims", "claim_events"),
)


@pytest.fixture
def site(database: str) -> str:
    """Ana's film, Bo's show, and an upload of "fan club" that copies both."""
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana", "The film")
        add_reference(connection, "show", "Bo", "The show")
        add_upload(connection, "upload", "fan club")
        record(connection, "upload", "film", segment(0, 20, at=30))
        record(connection, "upload", "show", segment(50, 60))
        settle_claims(connection, "upload")
    return database


def contents(database: str) -> dict[str, list[str]]:
    """Every row of what an analyst can change."""
    with transaction(connect(database)) as connection:
        return {
            table: sorted(connection.execute(text(f"SELECT {table}::text FROM {table}")).scalars())
            for table in TABLES
        }


REFUSED = [
    ("claims uphold 1", "claim 1 is potential and cannot become upheld; only active"),
    ("claims confirm 99", "there is no claim 99"),
    ("claims release 1 --reason because", "'because' is no reason"),
    ("claims release 1 --reason original --by engine", "decide in your own name"),
    ("claims list --owner Zoe", "no owner 'Zoe'"),
    (
        "policy add p --rule 'block seconds=30' --rule 'track seconds=30'",
        "1 and 2 of policy 'p'",
    ),
    ("policy add p --rule 'block in=DE,XX'", "no territory 'XX'"),
    ("policy add p --rule 'block sec=3'", "'sec=3' in the rule 'block sec=3' is none of"),
    ("policy add p --rule 'block seconds=long'", "'long' in the rule"),
    ("policy add p --rule 'block seconds=nan'", "cannot last nan seconds"),
    ("policy add p --rule 'block score=3'", "min_score is 3.0"),
    ("policy add p --rule 'destroy'", "'destroy' is no action"),
    ("policy add p --rule ''", "'' is no action"),
    ("policy add '' --rule track", "name of a policy must not be empty"),
    ("policy assign default", "either --asset or --owner"),
    ("policy assign none --owner Ana", "no policy 'none'"),
    ("policy assign default --owner Zoe", "no owner 'Zoe'"),
    ("policy assign default --asset 99", "no asset '99'"),
    ("policy dry-run none", "no policy 'none'"),
    ("policy dry-run default --owner Zoe", "no owner 'Zoe'"),
    ("asset share 1 --owner Bo --percent 60", "160 % in WW: others hold 100 %"),
    ("asset share 1 --owner Bo --percent 9 --territory XX", "no territory 'XX'"),
    ("asset share 1 --owner Bo --percent=-1", "a share of -1 % is impossible"),
    ("asset share 1 --percent 5 --owner ''", "owner must not be empty"),
    ("asset share 99 --owner Bo --percent 5", "no asset '99'"),
    ("asset allow Zoe --uploader x", "no owner 'Zoe'"),
    ("asset allow Ana", "either an uploader or one upload"),
    ("asset allow Ana --upload gone", "no upload has 'gone'"),
    ("asset allow Ana --uploader x --asset 2", "asset 2 'The show' belongs to 'Bo'"),
    ("asset remove 99", "no asset '99'"),
    ("reference exclude gone 0 4", "no video has 'gone'"),
    ("reference exclude upload 0 4", "video 'upload' is no reference"),
    ("reference exclude film 9 4", "from 9 to 4 seconds is empty"),
    ("reference exclude film 100 120", "film lasts 100 seconds"),
    ("reference exclude film nan 4", "from nan to 4 seconds"),
    ("reference exclude film 0 inf", "from 0 to inf seconds is empty, endless"),
    ("reference exclude film 0 0.0001", "shorter than a millisecond"),
    ("policy add p --rule 'block seconds=5 seconds=50'", "'seconds' stands twice in the rule"),
    ("policy add p --rule 'block in=DE in=FR'", "'in' stands twice in the rule"),
    ("report infringing_segments --asset 9", "there is no asset '9'"),
    ("report infringing_segments --asset 1 --owner Bo", "belongs to 'Ana' and not to 'Bo'"),
    ("report search_turnaround --asset 1", "search_turnaround has no asset to filter by"),
    ("claims evidence 99", "there is no claim 99"),
    ("report gossip", "no report 'gossip'; choose one of infringing_segments"),
    ("report claims_open --owner Zoe", "no owner 'Zoe'"),
    ("report claims_open --asset Nothing", "no asset 'Nothing'"),
    ("report search_turnaround --owner Ana", "search_turnaround has no owner to filter by"),
    ("report segments_by_transformation --since 2026-01-01", "has no time to filter by"),
]


def test_what_cannot_be_is_refused_by_name_and_nothing_is_written(vcl: Vcl, site: str) -> None:
    before = contents(site)
    for command, sentence in REFUSED:
        said = vcl(*shlex.split(command))
        assert (said.code, said.out) == (1, ""), (command, said)
        assert sentence in said.err, command
        assert contents(site) == before, command


def test_51_and_60_per_cent_are_refused_with_what_is_left(vcl: Vcl, site: str) -> None:
    said = vcl("asset", "share", "The film", "--owner", "Ana", "--percent", 51, "-t", "US")
    assert said.out == "Ana owns 51 % of asset 1 in US\n"
    before = contents(site)
    said = vcl("asset", "share", "The film", "--owner", "Bo", "--percent", 60, "-t", "US")
    assert said.code == 1
    assert "owned to 111 % in US: others hold 51 %, so 'Bo' can hold at most 49 %" in said.err
    assert contents(site) == before
    fits = vcl("asset", "share", "1", "--owner", "Bo", "--percent", 49, "-t", "US", "--json")
    assert json.loads(fits.out) == {
        **{"asset": 1, "owner": "Bo", "territory": "US", "percent": 49.0},
        "expired_claims": [],
    }


def test_a_policy_is_written_listed_rehearsed_assigned_and_then_rules(vcl: Vcl, site: str) -> None:
    said = vcl("policy", "add", "strict", "-r", "block seconds=15 in=DE,WW", "-r", "track")
    assert said.out == "policy strict has 2 rules\n"
    listed = [row for row in json.loads(vcl("policy", "list", "--json").out) if row["rule"] < 9]
    assert [(row["policy"], row["action"], row["territories"]) for row in listed] == [
        ("default", "review", []),
        ("strict", "block", ["DE", "WW"]),
        ("strict", "track", []),
    ]
    assert "DE WW" in vcl("policy", "list").out
    rehearsal = json.loads(vcl("policy", "dry-run", "strict", "--json").out)
    assert [(row["asset"], row["action"], row["claim_today"]) for row in rehearsal] == [
        ("The film", "block", "potential"),
        ("The show", "track", "potential"),
    ]
    alone = json.loads(vcl("policy", "dry-run", "strict", "--asset", "The show", "--json").out)
    assert alone == rehearsal[1:]
    assert {row["status"] for row in json.loads(vcl("claims", "list", "--json").out)} == {
        "potential"
    }
    said = vcl("policy", "assign", "strict", "--owner", "Ana")
    assert said.out == "all assets of Ana follow strict\n"
    claims = json.loads(vcl("claims", "list", "--json").out)
    assert {(row["owner"], row["status"], row["action"]) for row in claims} == {
        ("Ana", "active", "block"),
        ("Bo", "potential", "review"),
    }


def test_claims_follow_new_rules_and_new_holders_at_once(vcl: Vcl, site: str) -> None:
    def actions() -> dict[str, str]:
        claims = json.loads(vcl("claims", "list", "--json").out)
        return {row["owner"]: f"{row['status']} {row['action']}" for row in claims}

    vcl("policy", "add", "strict", "-r", "block")
    vcl("policy", "assign", "strict", "--owner", "Bo")
    assert actions() == {"Ana": "potential review", "Bo": "active block"}
    vcl("asset", "share", "The film", "--owner", "Bo", "--percent", 100, "-t", "DE")
    assert actions() == {"Ana": "active block", "Bo": "active block"}
    vcl("asset", "share", "The film", "--owner", "Bo", "--percent", 0, "-t", "DE")
    assert actions() == {"Ana": "potential review", "Bo": "active block"}
    said = vcl("policy", "add", "strict", "-r", "block seconds=90")
    assert said.out == "policy strict has 1 rule; claims without evidence expired: 2\n"
    vcl("policy", "add", "default", "-r", "monetize")
    assert actions()["Ana"] == "active monetize"


def test_a_report_takes_an_asset_by_number_or_title(vcl: Vcl, site: str) -> None:
    by_title = vcl("report", "infringing_segments", "--asset", "The show", "--json").out
    assert [row["owner"] for row in json.loads(by_title)] == ["Bo"]
    assert vcl("report", "infringing_segments", "--asset", 2, "--json").out == by_title


def test_new_rules_take_the_place_of_the_old(vcl: Vcl) -> None:
    vcl("policy", "add", "p", "-r", "track", "-r", "block seconds=5")
    said = vcl("policy", "add", "p", "-r", "monetize", "--json")
    facts = {"policy": "p", "version": 2, "rules": 1, "expired_claims": []}
    assert json.loads(said.out) == facts
    assert [row["action"] for row in json.loads(vcl("policy", "list", "--json").out)] == [
        *("review", "monetize")
    ]


def test_an_allowed_uploader_loses_the_claims_that_nobody_has_decided(vcl: Vcl, site: str) -> None:
    said = vcl("asset", "allow", "Ana", "--uploader", "fan club", "--note", "contract 7")
    assert said.out == (
        "Ana lets fan club use everything of theirs; claims without evidence expired: 1\n"
    )
    assert {
        (row["owner"], row["status"]) for row in json.loads(vcl("claims", "list", "--json").out)
    } == {
        ("Ana", "expired"),
        ("Bo", "potential"),
    }
    [held] = json.loads(vcl("report", "held_segments", "--json").out)
    assert (held["owner"], held["reason"]) == ("Ana", "allowed")


def test_a_video_registered_by_id_can_stand_for_an_asset(vcl: Vcl, site: str) -> None:
    """What another engine compared before is claimed as soon as the reference has an asset."""
    with transaction(connect(site)) as connection:
        add_upload(connection, "foreign:1")
        record(connection, "upload", "foreign:1", segment(70, 90))
        settle_claims(connection, "upload")
    said = vcl("reference", "add", "foreign:1", "--asset", "The show", "--wait", "--json")
    assert said.code == 0, said.err
    assert [(row["id"], row["status"]) for row in json.loads(said.out)] == [("foreign:1", "ready")]
    claims = {
        row["owner"]: row["seconds"] for row in json.loads(vcl("claims", "list", "--json").out)
    }
    assert claims == {"Ana": 20.0, "Bo": 30.0}
    assert vcl("reference", "add", "foreign:1", "--asset", "The film").code == 1
    assert vcl("reference", "add", "nobody's", "--asset", "The film").code == 1


def test_one_upload_may_be_allowed_for_one_asset(vcl: Vcl, site: str) -> None:
    vcl("claims", "confirm", 2)
    said = vcl("asset", "allow", "Bo", "--upload", "upload", "--asset", "The show", "--json")
    assert json.loads(said.out)["expired_claims"] == []  # a person confirmed it
    assert json.loads(vcl("claims", "show", 2, "--json").out)["status"] == "active"


def test_an_excluded_stretch_is_told_with_the_claims_it_ends(vcl: Vcl, site: str) -> None:
    said = vcl("reference", "exclude", "film", 25, 55, "--note", "the trailer")
    assert said.out == (
        "seconds 25 to 55 of film are excluded; claims without evidence expired: 1\n"
    )
    elsewhere = json.loads(vcl("reference", "exclude", "show", 90, 99, "--json").out)
    assert elsewhere["expired_claims"] == []


def test_a_claim_on_a_removed_asset_is_refused_by_name_and_nothing_is_written(
    vcl: Vcl, site: str
) -> None:
    said = vcl("asset", "remove", "The film")
    assert said.out == "asset 1 is removed with its 1 reference; claims that still stand: 1\n"
    assert "The film" not in vcl("asset", "list").out
    before = contents(site)
    for command in (("claims", "confirm", 1), ("policy", "assign", "default", "--asset", 1)):
        said = vcl(*command)
        assert said.code == 1
        assert "'The film'" in said.err
        assert "removed on" in said.err
    assert contents(site) == before
    assert vcl("claims", "release", 1, "--reason", "original").code == 0
    vcl("asset", "add", "The film", "--owner", "Ana")
    assert "The film" in vcl("asset", "list").out


def test_evidence_is_one_page_and_its_path_is_printed(
    vcl: Vcl, site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(site, "upload", "film")
    monkeypatch.chdir(tmp_path)
    assert vcl("claims", "evidence", 1).out == "claim-1.html\n"
    page = (tmp_path / "claim-1.html").read_text(encoding="utf-8")
    for fact in ("The film", "Ana", METHOD.model, METHOD.fingerprint, "0 – 20 s", "UTC"):
        assert fact in page, fact
    named = vcl("claims", "evidence", 1, "-o", tmp_path / "kept" / "a.html", "--json")
    assert json.loads(named.out) == {"claim": 1, "path": str(tmp_path / "kept" / "a.html")}


def test_evidence_of_a_released_claim_still_shows_what_it_rested_on(
    vcl: Vcl, site: str, tmp_path: Path
) -> None:
    describe(site, "upload", "film")
    assert vcl("claims", "release", 1, "--exclude", "--reason", "authorised").code == 0
    assert vcl("claims", "evidence", 1, "-o", tmp_path / "a.html").code == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "0 – 20 s" in page
    assert "authorised" in page


def test_evidence_names_the_run_that_found_it_and_not_a_later_one_that_found_nothing(
    vcl: Vcl, site: str, tmp_path: Path
) -> None:
    describe(site, "upload", "film")
    later = pairs.Method("later-localizer", METHOD.fingerprint)
    with transaction(connect(site)) as connection:
        search = searches.create_search(connection, "upload")
        pairs.open_pairs(connection, search, [Candidate("upload", "film", 1, 0.5)], later)
        pair = connection.execute(text("SELECT max(id) FROM pairs")).scalar_one()
        record_segments(
            connection,
            pairs.read_pair(connection, pair),
            Outcome([], [], later.model, "test", 0.1),
        )
    assert vcl("claims", "evidence", 1, "-o", tmp_path / "a.html").code == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert METHOD.model in page
    assert later.model not in page


def test_evidence_links_to_a_file_whatever_its_name(vcl: Vcl, site: str, tmp_path: Path) -> None:
    describe(site, "upload", "film")
    with transaction(connect(site)) as connection:
        for name in ("upload", "film"):
            path = tmp_path / f"{name}#1? 100%.mp4"
            path.write_text(f"{name}, not decoded in this test")
            connection.execute(
                text("UPDATE videos SET path = :path, content_hash = :hash WHERE id = :id"),
                {"path": str(path), "hash": hash_file(path), "id": name},
            )
    assert vcl("claims", "evidence", 1, "-o", tmp_path / "a.html").code == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    for name in ("upload", "film"):
        assert f'src="{name}%231%3F%20100%25.mp4"' in page


def test_evidence_that_cannot_be_written_is_a_sentence(vcl: Vcl, site: str, tmp_path: Path) -> None:
    describe(site, "upload", "film")
    (tmp_path / "file").write_text("no folder")
    said = vcl("claims", "evidence", 1, "-o", tmp_path / "file" / "a.html")
    assert (said.code, said.out) == (1, "")
    assert "a.html cannot be written" in said.err


@pytest.mark.parametrize("format", ["table", "csv", "json", "html"])
def test_a_report_is_printed_whole_in_every_format(vcl: Vcl, site: str, format: str) -> None:
    said = vcl("report", "infringing_segments", "--owner", "Ana", "--format", format)
    assert (said.code, said.err) == (0, "")
    assert "The film" in said.out
    assert "The show" not in said.out
    assert "…" not in said.out


def test_conflicts_of_two_owners_are_told_when_a_reference_is_added(
    vcl: Vcl, site: str, tmp_path: Path
) -> None:
    """The worker's part is played here: both videos are described and compared already."""
    (tmp_path / "remake.mp4").write_text("not decoded in this test")
    engine = RetrievalEngine(load_settings(), connect(site))
    video = engine.register(tmp_path / "remake.mp4")
    with transaction(engine.database) as connection:
        connection.execute(
            text("UPDATE videos SET status = 'ready', duration = 60 WHERE id = :id"), {"id": video}
        )
        record(connection, video, "film", segment(5, 15, at=40))
        connection.execute(text("UPDATE searches SET status = 'done'"))
    command = ("reference", "add", tmp_path / "remake.mp4", "--asset", "The show", "--wait")
    said = vcl(*command)
    assert said.code == 0, said.err
    assert "footage that another owner holds too" in said.out
    [row] = json.loads(vcl(*command, "--json").out)
    [conflict] = row["conflicts"]
    assert (conflict["other_owner"], conflict["other_start"]) == ("Ana", 40.0)


def test_a_reference_whose_comparison_is_under_way_is_waited_for(
    vcl: Vcl, site: str, tmp_path: Path
) -> None:
    (tmp_path / "remake.mp4").write_text("not decoded in this test")
    engine = RetrievalEngine(load_settings(), connect(site))
    video = engine.register(tmp_path / "remake.mp4")
    with transaction(engine.database) as connection:
        connection.execute(
            text("UPDATE videos SET status = 'ready', duration = 60 WHERE id = :id"), {"id": video}
        )
        search = searches.create_search(connection, video)
        pairs.open_pairs(connection, search, [Candidate(video, "film", 1, 0.5)], METHOD)
    said = vcl(
        *("reference", "add", tmp_path / "remake.mp4", "--asset", "The show"),
        *("--wait", "--timeout", "0.1"),
    )
    assert said.code == 1
    assert "1 of 1 videos are not compared with the others" in said.err


def describe(database: str, *videos: str) -> None:
    """Descriptors for videos of the small world, which has rows and no files."""
    engine = RetrievalEngine(load_settings(), connect(database))
    rng = np.random.default_rng(7)
    for video in videos:
        vectors = rng.normal(size=(100, 256)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        path = engine.store.write(video, METHOD.fingerprint, vectors, np.zeros(100, bool))
        with transaction(engine.database) as connection:
            catalogue.record_descriptors(
                connection, video, METHOD.fingerprint, str(path), *vectors.shape
            )
            connection.execute(text("UPDATE pairs SET status = 'done', finished_at = now()"))
