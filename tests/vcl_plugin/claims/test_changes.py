"""A changed rule is settled beside the work, names who changed it, and is never half forgotten."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from retrieval.database import connect, migrate, transaction
from tests.vcl_plugin.cli.conftest import Said, vcl  # noqa: F401
from tests.vcl_plugin.world import add_reference, add_upload, record, segment
from vcl_plugin.claims import changes, rights
from vcl_plugin.claims.claims import decide_claim, list_claims, read_claim
from vcl_plugin.claims.policies import Policy, Rule
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.cli.session import current_user

pytestmark = pytest.mark.usefixtures("site_environment")
Vcl = Callable[..., Said]


@pytest.fixture
def site(database: str) -> str:
    """Ana's film, found in an upload of "fan club"."""
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana", "The film")
        add_upload(connection, "upload", "fan club")
        record(connection, "upload", "film", segment(0, 20))
        settle_claims(connection, "upload")
    return database


def wait_for_a_lock(database: str) -> None:
    deadline = time.monotonic() + 120
    with connect(database).connect() as connection:
        waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        while not connection.execute(waiting).scalar():
            assert time.monotonic() < deadline, "nobody waits"
            time.sleep(0.02)


def test_recording_does_not_wait_while_a_new_policy_is_settled(
    vcl: Vcl,  # noqa: F811
    site: str,
) -> None:
    """An upload that somebody else has locked holds the settling up, and nothing else."""
    with transaction(connect(site)) as connection:
        add_upload(connection, "another")
    is_locked = threading.Event()

    def hold_and_record() -> None:
        with transaction(connect(site)) as holder:
            holder.execute(text("SELECT 1 FROM videos WHERE id = 'upload' FOR NO KEY UPDATE"))
            is_locked.set()
            wait_for_a_lock(site)
            with transaction(connect(site)) as worker:
                worker.execute(text("SET LOCAL lock_timeout = '2s'"))
                record(worker, "another", "film", segment(0, 10))
                settle_claims(worker, "another")

    with ThreadPoolExecutor(1) as thread:
        recorded = thread.submit(hold_and_record)
        assert is_locked.wait(60)
        assert vcl("policy", "add", "default", "--rule", "block").code == 0
        recorded.result(timeout=120)
    with transaction(connect(site)) as connection:
        found = {row["query"]: row["action"] for row in list_claims(connection)}
    assert found == {"upload": "block", "another": "block"}


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("reference", "exclude", "film", 0, 50), "excluded seconds 0 to 50 of film"),
        (
            ("asset", "allow", "Ana", "--uploader", "fan club"),
            "let uploader fan club use everything of Ana",
        ),
        (
            ("asset", "allow", "Ana", "--upload", "upload", "--asset", 1),
            "let upload upload use asset 1 of Ana",
        ),
        (("policy", "assign", "strict", "--asset", 1), "let asset 1 follow policy strict"),
        (("policy", "assign", "strict", "--owner", "Ana"), "let all assets of Ana follow policy"),
        (
            ("policy", "add", "default", "--rule", "block seconds=60"),
            "wrote version 2 of policy default: block seconds=60",
        ),
    ],
)
def test_the_history_says_who_changed_which_rule(
    vcl: Vcl,  # noqa: F811
    site: str,
    command: tuple[str, ...],
    what: str,
) -> None:
    with transaction(connect(site)) as connection:
        rights.add_policy(connection, Policy("strict", (Rule("block", min_seconds=60),)), "bo")
    said = vcl(*command, "--json")
    assert json.loads(said.out)["expired_claims"] == [1]
    with transaction(connect(site)) as connection:
        event = read_claim(connection, 1)["events"][-1]
    assert event["to_status"] == "expired"
    assert event["note"].startswith(f"no evidence left, since {current_user()} {what}")


def test_a_match_recorded_while_a_rule_is_settled_names_the_rule_that_ends_its_claim(
    site: str,
) -> None:
    with transaction(connect(site)) as connection:
        rights.allow_use(connection, "Ana", "ana", uploader="fan club")
        change = changes.note_change(
            connection, "ana", "let uploader fan club use everything of Ana", uploader="fan club"
        )
    with transaction(connect(site)) as connection:
        settle_claims(connection, "upload")
        assert "since ana let uploader" in read_claim(connection, 1)["events"][-1]["note"]
    assert changes.settle_change(connect(site), change) == [1]


def test_what_a_command_that_died_left_unsettled_is_settled_by_another(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transaction(connect(site)) as connection:
        for number in range(2 * changes.BATCH):
            add_upload(connection, f"v{number}")
            record(connection, f"v{number}", "film", segment(0, 20))
            settle_claims(connection, f"v{number}")
        rights.add_policy(connection, Policy("default", (Rule("block"),)), "ana")
        change = changes.note_change(connection, "ana", "wrote a policy", asset_ids=[1])

    def die(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        changes.settle_change(connect(site), change, die)
    with transaction(connect(site)) as connection:
        actions = [row["action"] for row in list_claims(connection)]
        assert actions.count("block") == changes.BATCH
    changes.settle_left(connect(site))
    with transaction(connect(site)) as connection:
        assert set(actions) == {"block", "review"}, "somebody may be at work"
    monkeypatch.setattr(changes, "AT_WORK", 0.0)
    steps: list[tuple[int, int]] = []
    changes.settle_left(connect(site), report=lambda done, total: steps.append((done, total)))
    left = changes.BATCH + 1
    assert steps == [(0, left), (changes.BATCH, left), (left, left)], "whoever waits sees a bar"
    with transaction(connect(site)) as connection:
        assert {row["action"] for row in list_claims(connection)} == {"block"}
        left = connection.execute(
            text("SELECT count(*) FROM rule_changes WHERE settled_at IS NULL")
        )
        assert left.scalar() == 0


def test_a_claim_that_blocks_here_and_earns_there_is_not_shown_as_blocked(
    vcl: Vcl,  # noqa: F811
    site: str,
    tmp_path: Path,
) -> None:
    everywhere = "block in DE, FR; monetize elsewhere"
    rules = ("--rule", "block in=DE,FR", "--rule", "monetize seconds=5")
    assert vcl("policy", "add", "default", *rules).code == 0
    assert everywhere in vcl("claims", "list").out
    assert everywhere in vcl("claims", "show", 1).out
    assert everywhere in vcl("policy", "dry-run", "default").out
    assert json.loads(vcl("claims", "list", "--json").out)[0]["actions"] == everywhere
    assert json.loads(vcl("policy", "dry-run", "default", "--json").out)[0]["actions"] == everywhere
    assert vcl("claims", "evidence", 1, "-o", tmp_path / "page.html").code == 0
    assert f'<span class="badge">{everywhere}</span></h2>' in (tmp_path / "page.html").read_text()
    with transaction(connect(site)) as connection:
        note = read_claim(connection, 1)["events"][-1]["note"]
    assert note.startswith(
        f"{everywhere} (policy default: block in=DE,FR; monetize seconds=5), since"
    )


def test_a_report_says_where_a_claim_does_what_and_by_whose_rules(
    vcl: Vcl,  # noqa: F811
    site: str,
) -> None:
    rules = ("--rule", "block in=DE", "--rule", "monetize seconds=5")
    assert vcl("policy", "add", "default", *rules).code == 0
    rows = json.loads(vcl("report", "claims_by_territory", "--owner", "Ana", "--json").out)
    shown = [
        (row["territory"], row["action"], row["policy_version"], row["policy_author"])
        for row in rows
    ]
    assert shown == [("DE", "block", 2, current_user()), ("WW", "monetize", 2, current_user())]
    assert vcl("reference", "exclude", "film", 0, 50).code == 0
    assert json.loads(vcl("report", "claims_by_territory", "--json").out) == []


def test_a_claim_that_stays_active_and_does_something_else_has_an_event(
    vcl: Vcl,  # noqa: F811
    site: str,
) -> None:
    for action in ("block", "monetize", "monetize"):
        assert vcl("policy", "add", "default", "--rule", action).code == 0
    with transaction(connect(site)) as connection:
        events = read_claim(connection, 1)["events"]
    assert [(each["from_status"], each["to_status"]) for each in events] == [
        (None, "potential"),
        ("potential", "active"),
        ("active", "active"),
    ]
    assert "wrote version 3 of policy default: monetize" in events[-1]["note"]


def test_the_page_prints_the_rules_that_applied_and_not_todays(
    vcl: Vcl,  # noqa: F811
    site: str,
    tmp_path: Path,
) -> None:
    assert vcl("policy", "add", "default", "--rule", "block seconds=17").code == 0
    with transaction(connect(site)) as connection:
        decide_claim(connection, 1, "disputed", "the uploader")
    assert vcl("policy", "add", "default", "--rule", "track seconds=13").code == 0
    assert vcl("claims", "evidence", 1, "-o", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "policy default, version 2: block" in page
    assert f"by {current_user()}" in page
    assert "≥ 17" in page
    assert "≥ 13" not in page


def test_a_policy_keeps_its_authors_and_versions(vcl: Vcl, site: str) -> None:  # noqa: F811
    for seconds in (10, 20):
        assert vcl("policy", "add", "p", "--rule", f"block seconds={seconds}").code == 0
    found = json.loads(vcl("policy", "list", "--history", "--json").out)
    mine = [(row["version"], row["min_seconds"], row["author"]) for row in found][-2:]
    assert mine == [(1, 10.0, current_user()), (2, 20.0, current_user())]
    [now] = [row for row in json.loads(vcl("policy", "list", "--json").out) if row["policy"] == "p"]
    assert (now["version"], now["min_seconds"]) == (2, 20.0)


def test_policies_and_claims_of_before_keep_their_rules_and_actions(
    vcl: Vcl,  # noqa: F811
    site: str,
    tmp_path: Path,
) -> None:
    """Down to the schema without versions and up again: what is in force stays."""
    for action in ("monetize seconds=4", "block seconds=5"):
        assert vcl("policy", "add", "default", "--rule", action).code == 0
    migrate(site, "0009")
    migrate(site)
    [rule] = json.loads(vcl("policy", "list", "--history", "--json").out)
    assert (rule["action"], rule["min_seconds"], rule["version"]) == ("block", 5.0, 1)
    assert rule["author"] == "unknown"
    assert json.loads(vcl("claims", "list", "--json").out)[0]["actions"] == "block"
    assert vcl("claims", "evidence", 1, "-o", tmp_path / "page.html").code == 0
    assert "policy default, version 1: block" in (tmp_path / "page.html").read_text()
