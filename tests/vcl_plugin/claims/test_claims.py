"""A claim moves only along its ways, and every move is an event that nobody can change."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from retrieval.database import connect, transaction
from retrieval.errors import NotFound, Refused
from tests.vcl_plugin.world import add_reference, add_upload
from vcl_plugin.claims.claims import REASONS, TRANSITIONS, decide_claim, list_claims, read_claim


@pytest.fixture
def db(database: str) -> Engine:
    return connect(database)


def plant_claim(connection: Connection, status: str, upload: str = "upload") -> int:
    """A claim as it stands after some history that does not matter here."""
    add_reference(connection, "film", "Northlight")
    add_upload(connection, upload)
    return connection.execute(
        text("""
        INSERT INTO claims (asset_id, query_id, status)
        SELECT asset_id, :upload, :status FROM reference_videos RETURNING id"""),
        {"status": status, "upload": upload},
    ).scalar_one()


def events(connection: Connection) -> list[tuple[str, str, str, str | None]]:
    rows = connection.execute(
        text("SELECT actor, from_status, to_status, reason FROM claim_events ORDER BY id")
    )
    return [tuple(row) for row in rows]


def test_every_way_of_a_claim_is_open_and_every_other_is_refused(db: Engine):
    with transaction(db) as connection:
        claims = {
            (before, after): plant_claim(connection, before, f"{before} to {after}")
            for before, after in itertools.product(TRANSITIONS, TRANSITIONS)
        }
    for (before, after), claim in claims.items():
        with transaction(db) as connection:
            count = len(events(connection))
            if after in TRANSITIONS[before]:
                decide_claim(connection, claim, after, "ana")
                assert events(connection)[count:] == [("ana", before, after, None)]
            else:
                with pytest.raises(Refused, match=rf"{before} and cannot become {after}"):
                    decide_claim(connection, claim, after, "ana")
                assert len(events(connection)) == count
                assert read_claim(connection, claim)["status"] == before


def test_the_ways_of_a_claim_are_those_drawn_in_the_document():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "states.md").read_text(
        encoding="utf-8"
    )
    drawn = dict(re.findall(r"^\| (\w+) \| ([\w, ]+) \|$", page, flags=re.MULTILINE))
    assert {
        before: frozenset() if after == "nothing" else frozenset(after.split(", "))
        for before, after in drawn.items()
        if before in TRANSITIONS
    } == TRANSITIONS


def test_a_decision_and_its_event_are_written_together_or_not_at_all(db: Engine):
    with transaction(db) as connection:
        claim = plant_claim(connection, "potential")

    def decide_and_fail() -> None:
        with transaction(db) as connection:
            decide_claim(connection, claim, "active", "ana")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decide_and_fail()
    with transaction(db) as connection:
        assert read_claim(connection, claim)["status"] == "potential"
        assert events(connection) == []


@pytest.mark.parametrize(
    "statement",
    ["UPDATE claim_events SET actor = 'x'", "DELETE FROM claim_events", "TRUNCATE claim_events"],
)
def test_history_cannot_be_changed(db: Engine, statement: str):
    with transaction(db) as connection:
        claim = plant_claim(connection, "potential")
        decide_claim(connection, claim, "active", "ana")
    with pytest.raises(DBAPIError, match="append-only"), transaction(db) as connection:
        connection.execute(text(statement))
    with transaction(db) as connection:
        assert events(connection) == [("ana", "potential", "active", None)]


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_kept_with_the_event(db: Engine, reason: str):
    with transaction(db) as connection:
        claim = plant_claim(connection, "active")
        decide_claim(connection, claim, "released", "ana", reason, "see letter 7")
        [event] = read_claim(connection, claim)["events"]
    assert (event["reason"], event["note"]) == (reason, "see letter 7")


def test_a_reason_nobody_knows_is_refused_with_those_that_exist(db: Engine):
    with transaction(db) as connection:
        claim = plant_claim(connection, "active")
        with pytest.raises(Refused, match=r"'because' is no reason.*misidentified"):
            decide_claim(connection, claim, "released", "ana", "because")


def test_a_claim_nobody_raised_is_not_found(db: Engine):
    with transaction(db) as connection:
        for touch in (
            lambda: decide_claim(connection, 7, "active", "ana"),
            lambda: read_claim(connection, 7),
        ):
            with pytest.raises(NotFound, match="no claim 7"):
                touch()


def test_claims_are_listed_by_status_and_upload(db: Engine):
    with transaction(db) as connection:
        one = plant_claim(connection, "active", "one")
        two = plant_claim(connection, "released", "two")
        assert [each["id"] for each in list_claims(connection, "active")] == [one]
        assert [each["id"] for each in list_claims(connection, query_id="two")] == [two]
        assert {each["id"] for each in list_claims(connection)} == {one, two}
