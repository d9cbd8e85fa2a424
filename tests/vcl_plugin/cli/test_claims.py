"""Claims on the command line: filtered, paged, decided one by one or many at once, taken back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from sqlalchemy import text

from retrieval.database import transaction
from retrieval.process import process_database
from tests.vcl_plugin import world
from tests.vcl_plugin.cli.conftest import Said
from vcl_plugin.claims.settlement import settle_claims

Run = Callable[..., Said]


@pytest.fixture
def claims(site_environment: None) -> dict[str, int]:
    """Claims by upload: two of Northlight with 10 and 20 seconds, one of Ostrava with 40."""
    with transaction(process_database()) as connection:
        world.add_reference(connection, "harbour", "Northlight")
        world.add_reference(connection, "tram", "Ostrava")
        found = {}
        for name, reference, seconds in (
            ("ten", "harbour", 10),
            ("twenty", "harbour", 20),
            ("forty", "tram", 40),
        ):
            world.add_upload(connection, name, f"by {name}")
            world.record(connection, name, reference, world.segment(0, seconds))
            found[name] = settle_claims(connection, name)[0]
        connection.execute(text("UPDATE claims SET status = 'potential'"))
    return found


def statuses(vcl: Run) -> dict[str, str]:
    rows = json.loads(vcl("claims", "list", "--json").out)
    return {row["query"]: row["status"] for row in rows}


def test_claims_are_filtered_sorted_and_paged(vcl: Run, claims: dict[str, int]) -> None:
    def queries(*options: object) -> list[str]:
        said = vcl("claims", "list", "--json", *options)
        assert said.code == 0, said.err
        return [row["query"] for row in json.loads(said.out)]

    assert queries() == ["forty", "twenty", "ten"], "the newest first"
    assert queries("--sort", "seconds", "--owner", "Northlight") == ["twenty", "ten"]
    assert queries("--min-seconds", 15, "--max-seconds", 30) == ["twenty"]
    assert queries("--text", "by ten") == ["ten"]
    assert queries("--status", "active", "--status", "released") == []
    first = vcl("claims", "list", "--limit", 2, "--json")
    cursor = first.err.split("--after ")[1].split()[0]
    assert queries("--limit", 2, "--after", cursor) == ["ten"]
    assert json.loads(vcl("claims", "count", "--json").out)["potential"] == 3


def test_a_filter_decides_all_that_it_means_and_nothing_else(
    vcl: Run, claims: dict[str, int]
) -> None:
    tried = vcl("claims", "confirm", "--owner", "Northlight", "--dry-run")
    assert (tried.code, tried.out.strip()) == (0, "2 claims would become active")
    assert set(statuses(vcl).values()) == {"potential"}
    assert (
        vcl("claims", "confirm", "--owner", "Northlight").out.strip() == "2 claims are now active"
    )
    assert statuses(vcl) == {"ten": "active", "twenty": "active", "forty": "potential"}


def test_several_claims_are_decided_and_those_that_cannot_be_say_why(
    vcl: Run, claims: dict[str, int]
) -> None:
    vcl("claims", "release", claims["ten"], "--reason", "fair_use")
    said = vcl("claims", "confirm", claims["ten"], claims["twenty"], 999)
    assert said.code == 1
    assert said.out.strip() == "1 claim is now active"
    assert f"claim {claims['ten']} is released and cannot become active" in said.err
    assert "there is no claim 999" in said.err
    again = json.loads(vcl("claims", "dispute", *claims.values(), "--dry-run", "--json").out)
    assert (again["changed"], again["refused"], again["dry_run"]) == (1, 2, True)


def test_a_release_needs_a_reason(vcl: Run, claims: dict[str, int]) -> None:
    said = vcl("claims", "release", claims["ten"])
    assert said.code == 1
    assert "a release needs a reason: one of misidentified" in said.err
    assert "(reason_missing)" in said.err
    assert statuses(vcl)["ten"] == "potential"


def test_naming_no_claim_is_wrong_usage(vcl: Run, claims: dict[str, int]) -> None:
    assert vcl("claims", "confirm").code == 2
    assert vcl("claims", "confirm", 1, "--owner", "Northlight").code == 2
    assert vcl("claims", "confirm", "--status", "nonsense").code == 2
    assert vcl("claims", "confirm", "--owner", "Nobody").code == 1
    assert set(statuses(vcl).values()) == {"potential"}


def test_a_decision_is_taken_back_within_a_minute(vcl: Run, claims: dict[str, int]) -> None:
    vcl("claims", "confirm", claims["ten"], "--by", "ana")
    others = vcl("claims", "undo", claims["ten"], "--by", "bo")
    assert others.code == 1
    assert "is ana's; nobody else" in others.err
    said = vcl("claims", "undo", claims["ten"], "--by", "ana")
    assert said.out.strip() == f"claim {claims['ten']} is potential again"
    assert statuses(vcl)["ten"] == "potential"


def test_claims_carry_notes_and_whoever_looks_at_them(vcl: Run, claims: dict[str, int]) -> None:
    assert vcl("claims", "assign", "--owner", "Northlight", "--to", "bo").code == 0
    rows = json.loads(vcl("claims", "list", "--assignee", "bo", "--json").out)
    assert {row["query"] for row in rows} == {"ten", "twenty"}
    vcl("claims", "note", claims["ten"], "ask the label", "--by", "ana")
    shown = vcl("claims", "show", claims["ten"])
    assert "bo looks at it" in shown.out
    assert "ask the label" in shown.out
    vcl("claims", "assign", claims["ten"])
    assert json.loads(vcl("claims", "show", claims["ten"], "--json").out)["assignee"] is None


def test_allowances_exclusions_and_shares_are_listed_and_revoked(
    vcl: Run, claims: dict[str, int]
) -> None:
    vcl("asset", "allow", "Northlight", "--uploader", "by ten")
    assert vcl("reference", "exclude", "harbour", 0, 60).code == 0
    assert statuses(vcl) == {"ten": "expired", "twenty": "expired", "forty": "potential"}
    [allowed] = json.loads(vcl("asset", "allowances", "--owner", "Northlight", "--json").out)
    assert allowed["uploader"] == "by ten"
    [excluded] = json.loads(vcl("reference", "exclusions", "harbour", "--json").out)
    assert (excluded["start"], excluded["end"], excluded["owner"]) == (0, 60, "Northlight")
    assert "is revoked" in vcl("reference", "include", excluded["id"]).out
    assert statuses(vcl)["ten"] == "expired", "its uploader is still allowed"
    assert statuses(vcl)["twenty"] != "expired"
    assert "is revoked" in vcl("asset", "revoke", allowed["id"]).out
    assert statuses(vcl)["ten"] != "expired"
    assert "nobody is allowed anything" in vcl("asset", "allowances").err
    assert vcl("asset", "revoke", allowed["id"]).code == 1
    shares = json.loads(vcl("asset", "shares", "harbour the film", "--json").out)
    assert [(each["owner"], each["territory"], each["percent"]) for each in shares] == [
        ("Northlight", "WW", 100)
    ]
