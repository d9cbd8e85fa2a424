"""A search that somebody ends is cancelled at once, and costs no work any more."""

from __future__ import annotations

from contextlib import suppress

import pytest
from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.errors import Moved, NotFound
from retrieval.records import Candidate
from retrieval.work import leases, pairs, searches
from retrieval.work.cancellation import cancel_search
from tests.retrieval.planted_rows import METHOD, plant_search, plant_videos, read_pairs, read_row
from tests.retrieval.work.test_searches import finish, run_at_once


def test_a_cancelled_search_says_who_ended_it_and_how_much_was_left(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b", "c")
        plant_search(connection, "q", ["a", "b", "c"], "s")
    finish(db, 1)
    with transaction(db) as connection:
        state = cancel_search(connection, "s", "ada")
    assert (state.status, state.reason, state.message) == (
        "cancelled",
        "cancelled",
        "cancelled by ada",
    )
    assert (state.pairs_total, state.pairs_left) == (3, 2)
    assert state.status.is_final
    assert state.seconds is not None
    assert searches.wait_for_search(db, "s", 5) == state


def test_its_pairs_do_no_more_work_and_what_was_compared_stays(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b", "c")
        plant_search(connection, "q", ["a", "b", "c"], "s")
    finish(db, 1)
    with transaction(db) as connection:
        leases.acquire(connection, leases.Table.PAIRS, [2], "w", 60)
    with transaction(db) as connection:
        cancel_search(connection, "s", "ada")
        assert [row.status for row in read_pairs(connection)] == ["done", "cancelled", "cancelled"]
        assert not leases.holds(connection, leases.Table.PAIRS, 2, "w"), "a worker records nothing"
        asked = "q", ["a", "b", "c"], METHOD.model
        assert pairs.lease_pairs(connection, *asked, "w", 60, 3) == []
        assert leases.expire(connection, leases.Table.PAIRS, 3) == []
        assert searches.recount(connection) == 0


def test_a_pair_that_another_search_waits_for_is_compared_for_that_one(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        plant_search(connection, "q", ["a", "b"], "ended")
        plant_search(connection, "q", ["b"], "other")
        cancel_search(connection, "ended", "ada")
        assert [row.status for row in read_pairs(connection)] == ["cancelled", "waiting"]
    finish(db, 2)
    with transaction(db) as connection:
        assert searches.read_search(connection, "other").status == "done"
        ended = searches.read_search(connection, "ended")
    assert (ended.status, ended.pairs_left) == ("cancelled", 2)


def test_the_last_search_of_a_shared_pair_ends_it(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        for name in ("first", "second"):
            plant_search(connection, "q", ["a"], name)
        for name in ("first", "second"):
            cancel_search(connection, name, "ada")
        assert read_row(connection, "pairs", 1).status == "cancelled"


def test_searching_again_goes_on_where_the_cancelled_search_ended(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        plant_search(connection, "q", ["a", "b"], "ended")
    finish(db, 1)
    with transaction(db) as connection:
        cancel_search(connection, "ended", "ada")
        plant_search(connection, "q", ["a", "b"], "again")
        state = searches.read_search(connection, "again")
        assert (state.status, state.pairs_total, state.pairs_left) == ("localizing", 2, 1)
    finish(db, 2)
    with transaction(db) as connection:
        assert searches.read_search(connection, "again").status == "done"
        assert searches.read_search(connection, "ended").status == "cancelled"


def test_a_search_that_is_cancelled_while_it_is_planned_opens_no_pair(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        searches.create_search(connection, "q", "s")
        leases.acquire(connection, leases.Table.SEARCHES, ["s"], "planner", 60)
    with transaction(db) as connection:
        cancel_search(connection, "s", "ada")
    with transaction(db) as connection:
        searches.annotate_search(connection, "s", "query_is_reference", "a remark")
        opened = pairs.open_pairs(connection, "s", [Candidate("q", "a", 1, 0.5)], METHOD)
        assert opened == []
        pairs.open_pairs(connection, "s", [], METHOD)
        assert read_pairs(connection) == []
        state = searches.read_search(connection, "s")
    assert (state.status, state.message) == ("cancelled", "cancelled by ada")


def test_cancelling_twice_is_cancelling_once_and_keeps_the_first_name(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        plant_search(connection, "q", ["a"], "s")
        cancel_search(connection, "s", "ada")
        assert cancel_search(connection, "s", "bob").message == "cancelled by ada"


def test_a_search_at_its_end_cannot_be_cancelled(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q")
        plant_search(connection, "q", [], "s")
        with pytest.raises(Moved, match="search s is done and cannot be cancelled"):
            cancel_search(connection, "s", "ada")
        with pytest.raises(NotFound, match="no search nope"):
            cancel_search(connection, "nope", "ada")


def test_cancelling_races_with_planning_and_finishing_and_leaves_no_work(db: Engine):
    rounds, references = 25, ["a", "b", "c"]
    with transaction(db) as connection:
        plant_videos(connection, *references, *(f"q{n}" for n in range(rounds)))
    for number in range(rounds):
        query, search = f"q{number}", f"s{number}"
        with transaction(db) as connection:
            plant_search(connection, query, ["a"], search)
            [first] = [row.id for row in read_pairs(connection) if row.query_id == query]

        def plan(query: str = query, search: str = search) -> None:
            with transaction(db) as connection:
                plant_search(connection, query, references, search)

        def cancel(search: str = search) -> None:
            # Its only pair may be finished before.
            with suppress(Moved), transaction(db) as connection:
                cancel_search(connection, search, "ada")

        def finish_first(pair: int = first) -> None:
            with transaction(db) as connection:
                leases.acquire(connection, leases.Table.PAIRS, [pair], "w", 60)
            with transaction(db) as connection:
                if leases.holds(connection, leases.Table.PAIRS, pair, "w"):
                    pairs.finish_pair(connection, pair, "w")

        run_at_once(plan, cancel, finish_first)
    with transaction(db) as connection:
        left = connection.execute(
            text("""
            SELECT searches.id FROM searches JOIN search_pairs ON search_id = searches.id
            JOIN pairs ON pairs.id = pair_id
            WHERE searches.status = 'cancelled' AND pairs.status IN ('waiting', 'running')""")
        ).all()
        assert left == []
        assert searches.recount(connection) == 0


def test_the_day_counts_its_cancelled_searches(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        plant_search(connection, "q", ["a"], "s")
        cancel_search(connection, "s", "ada")
        row = connection.execute(text("SELECT * FROM search_turnaround")).one()
    assert (row.searches, row.done, row.failed, row.cancelled) == (1, 0, 0, 1)
