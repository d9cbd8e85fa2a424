"""The queue of claims, and decisions about many of them, on a real database."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from retrieval.database import connect, transaction
from retrieval.errors import Moved, NotFound, Refused
from tests.vcl_plugin import world
from vcl_plugin.claims import decisions, queue
from vcl_plugin.claims.decisions import Decision
from vcl_plugin.claims.queue import ClaimFilter
from vcl_plugin.claims.settlement import settle_claims


@pytest.fixture
def claims(database: str) -> dict[str, int]:
    """Claims by upload: three of Northlight with 10, 20 and 30 seconds, one of Ostrava with 40."""
    with transaction(connect(database)) as connection:
        world.add_reference(connection, "harbour", "Northlight")
        world.add_reference(connection, "tram", "Ostrava")
        found = {}
        for name, reference, seconds in (
            ("ten", "harbour", 10),
            ("twenty", "harbour", 20),
            ("thirty", "harbour", 30),
            ("forty", "tram", 40),
        ):
            world.add_upload(connection, name, f"by {name}")
            world.record(connection, name, reference, world.segment(0, seconds))
            found[name] = settle_claims(connection, name)[0]
        connection.execute(text("UPDATE claims SET status = 'potential'"))
    return found


def read_status(database: str, claim_id: int) -> str:
    with transaction(connect(database)) as connection:
        return str(queue.read_queued(connection, claim_id)["status"])


def test_the_queue_is_sorted_by_what_is_at_stake_and_paged_without_a_gap(
    database: str, claims: dict[str, int]
) -> None:
    with transaction(connect(database)) as connection:
        connection.execute(
            text(
                "UPDATE claims SET created_at = now() - interval '9 days', staked_on = '2000-1-1' "
                "WHERE id = :id"
            ),
            {"id": claims["ten"]},
        )
    assert queue.age_stakes(connect(database)) == 1
    assert queue.age_stakes(connect(database)) == 0
    seen, cursor = [], None
    with transaction(connect(database)) as connection:
        while True:
            page = queue.list_queue(connection, limit=1, after=cursor)
            seen += [row["query"] for row in page.claims]
            cursor = page.next
            if cursor is None:
                break
    assert seen == ["ten", "forty", "thirty", "twenty"]


def test_each_filter_narrows(database: str, claims: dict[str, int]) -> None:
    expected = {
        ClaimFilter(owner="Ostrava"): {"forty"},
        ClaimFilter(min_seconds=20, max_seconds=30): {"twenty", "thirty"},
        ClaimFilter(asset="tram the film"): {"forty"},
        ClaimFilter(text="by t"): {"ten", "twenty", "thirty"},
        ClaimFilter(text="100%_"): set(),
        ClaimFilter(upload="ten"): {"ten"},
        ClaimFilter(min_age=1): set(),
        ClaimFilter(max_score=0.5): set(),
        ClaimFilter(status=("released",)): set(),
    }
    with transaction(connect(database)) as connection:
        for wanted, names in expected.items():
            rows = queue.list_queue(connection, wanted).claims
            assert {row["query"] for row in rows} == names, wanted
            assert len(queue.list_ids(connection, wanted)) == len(names)
    with pytest.raises(Refused, match="nothing lies between"):
        ClaimFilter(min_seconds=5, max_seconds=1)


def test_a_cursor_of_another_order_is_refused(database: str, claims: dict[str, int]) -> None:
    with transaction(connect(database)) as connection:
        page = queue.list_queue(connection, limit=1)
        for cursor in (page.next, "nonsense", "é", ""):
            with pytest.raises(Refused, match="cursor"):
                queue.list_queue(connection, sort="newest", after=cursor)


def test_claims_of_other_owners_are_not_there(database: str, claims: dict[str, int]) -> None:
    mine = {"Northlight"}
    with transaction(connect(database)) as connection:
        assert len(queue.list_queue(connection, owners=mine).claims) == 3
        assert queue.count_queue(connection, owners=mine)["potential"] == 3
        assert queue.list_queue(connection, owners=set()).claims == []
        with pytest.raises(NotFound) as others:
            queue.read_queued(connection, claims["forty"], mine)
        with pytest.raises(NotFound) as nobodys:
            queue.read_queued(connection, 10**9, mine)
    number = str(claims["forty"])
    assert str(others.value).replace(number, "N") == str(nobodys.value).replace(str(10**9), "N")
    outcomes = decisions.decide_many(
        connect(database), [claims["forty"], 10**9], Decision("confirm", "ana"), mine
    )
    assert [(each.status, each.reason) for each in outcomes] == [(None, "not_found")] * 2
    assert read_status(database, claims["forty"]) == "potential"


def test_many_are_decided_at_once_and_a_trial_changes_nothing(
    database: str, claims: dict[str, int]
) -> None:
    engine = connect(database)
    decision = Decision("release", "ana", "fair_use")
    ids = [*claims.values(), 10**9]
    tried = decisions.decide_many(engine, ids, decision, dry_run=True)
    assert sum(each.is_changed for each in tried) == 4
    assert read_status(database, claims["ten"]) == "potential"
    decisions.decide_many(engine, [claims["ten"]], Decision("confirm", "bo"))
    made = decisions.decide_many(engine, ids, decision)
    assert sum(each.is_changed for each in made) == 4
    again = decisions.decide_many(engine, ids, decision)
    assert [each.reason for each in again] == ["refused"] * 4 + ["not_found"]
    with transaction(engine) as connection:
        actors = connection.execute(
            text("SELECT count(*) FROM claim_events WHERE actor = 'ana' AND reason = 'fair_use'")
        ).scalar_one()
    assert actors == 4


def test_a_release_needs_a_reason() -> None:
    with pytest.raises(Refused, match="needs a reason") as error:
        Decision("release", "ana")
    assert error.value.code == "reason_missing"


def test_a_claim_that_moved_meanwhile_is_not_decided(database: str, claims: dict[str, int]) -> None:
    with transaction(connect(database)) as connection:
        decisions.decide(connection, claims["ten"], Decision("confirm", "ana"))
    seen = Decision("release", "bo", "fair_use", expected="potential")
    with transaction(connect(database)) as connection, pytest.raises(Moved) as error:
        decisions.decide(connection, claims["ten"], seen)
    assert error.value.code == "moved"


def test_a_decision_is_taken_back_by_who_made_it_and_within_a_minute(
    database: str, claims: dict[str, int]
) -> None:
    engine, claim = connect(database), claims["ten"]
    with transaction(engine) as connection:
        decisions.decide(connection, claim, Decision("release", "ana", "authorised"))
    with transaction(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM allowances")).scalar_one() == 1
        with pytest.raises(Refused, match="nobody else"):
            decisions.undo_decision(connection, claim, "bo")
        assert decisions.undo_decision(connection, claim, "ana").status == "potential"
        assert connection.execute(text("SELECT count(*) FROM allowances")).scalar_one() == 0
        with pytest.raises(Refused, match="no decision"):
            decisions.undo_decision(connection, claim, "ana")
        history = decisions.read_history(connection, claim)["events"]
    assert [event["to_status"] for event in history][-2:] == ["released", "potential"]
    with transaction(engine) as connection:
        decided = connection.execute(text("SELECT count(*) FROM claim_decisions")).scalar_one()
    assert decided == 0  # so the engine follows the evidence again
    with transaction(engine) as connection:
        decisions.decide(connection, claim, Decision("confirm", "ana"))
        connection.execute(text("ALTER TABLE claim_events DISABLE TRIGGER USER"))
        connection.execute(text("UPDATE claim_events SET at = at - interval '2 minutes'"))
    with transaction(engine) as connection, pytest.raises(Refused) as error:
        decisions.undo_decision(connection, claim, "ana")
    assert error.value.code == "too_late"


def test_taking_back_a_release_with_exclusion_brings_the_siblings_back(
    database: str, claims: dict[str, int]
) -> None:
    engine = connect(database)
    [outcome] = decisions.decide_many(
        engine, [claims["thirty"]], Decision("exclude", "ana", "misidentified")
    )
    assert set(outcome.released_with_it) == {claims["ten"], claims["twenty"]}
    with transaction(engine) as connection:
        decisions.undo_decision(connection, claims["thirty"], "ana")
    assert {read_status(database, claims[each]) for each in claims} == {"potential"}
    with transaction(engine) as connection:
        left = connection.execute(text("SELECT count(*) FROM reference_exclusions")).scalar_one()
        held = connection.execute(text("SELECT count(held) FROM segments")).scalar_one()
    assert (left, held) == (0, 0)


def test_notes_and_assignment_change_no_status(database: str, claims: dict[str, int]) -> None:
    with transaction(connect(database)) as connection:
        decisions.add_note(connection, claims["ten"], "ana", "ask the label")
        decisions.assign_claims(connection, [claims["ten"]], "bo", "ana")
        found = decisions.read_history(connection, claims["ten"])
        assert [
            row["id"] for row in queue.list_queue(connection, ClaimFilter(assignee="bo")).claims
        ] == [claims["ten"]]
        with pytest.raises(NotFound):
            decisions.add_note(connection, claims["forty"], "ana", "x", {"Northlight"})
    assert [each["note"] for each in found["notes"]] == ["ask the label", "assigned to bo"]
    assert (found["status"], found["assignee"]) == ("potential", "bo")
