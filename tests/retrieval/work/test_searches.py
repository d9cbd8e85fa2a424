"""A search is done exactly when its last pair is, whoever finishes it and whatever runs beside."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, text

from retrieval.database import connect, migrate, transaction
from retrieval.errors import NotFound, Refused
from retrieval.records import Candidate
from retrieval.work import catalogue, leases, pairs, searches
from tests.retrieval.planted_rows import (
    METHOD,
    plant_search,
    plant_videos,
    read_pairs,
    read_row,
    set_aside,
)


def run_at_once(*works: Callable[[], None]) -> None:
    """Each in a thread with a connection of its own; an error in one is an error here."""
    barrier = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def finish(db: Engine, pair_id: int, holder: str = "w") -> None:
    """What a worker does around its result, in its two transactions."""
    with transaction(db) as connection:
        taken = leases.acquire(connection, "pairs", [pair_id], holder, 60)
    if taken:
        with transaction(db) as connection:
            assert leases.holds(connection, "pairs", pair_id, holder)
            pairs.finish_pair(connection, pair_id, holder)


def test_a_search_counts_its_pairs_down_to_done(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        search = plant_search(connection, "q", ["a", "b"])
        opened = read_pairs(connection)
        assert searches.read_search(connection, search).status == "localizing"
    finish(db, opened[0].id)
    with transaction(db) as connection:
        state = searches.read_search(connection, search)
        assert (state.status, state.pairs_left, state.pairs_total) == ("localizing", 1, 2)
    finish(db, opened[1].id)
    with transaction(db) as connection:
        state = searches.read_search(connection, search)
    assert (state.status, state.pairs_left) == ("done", 0)
    assert state.seconds is not None


def test_a_pair_finished_twice_is_counted_once(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        search = plant_search(connection, "q", ["a", "b"])
        pair = read_pairs(connection)[0].id
        leases.acquire(connection, "pairs", [pair], "w", 60)
        pairs.finish_pair(connection, pair, "w")
        pairs.finish_pair(connection, pair, "w")
        pairs.quarantine_pair(connection, pair, "w", "late", "a second verdict")
        assert searches.read_search(connection, search).pairs_left == 1
        assert read_row(connection, "pairs", pair).status == "done"


def test_many_finishers_at_once_leave_exact_counts_in_searches_that_share_pairs(db: Engine):
    references = [f"r{number:02}" for number in range(24)]
    with transaction(db) as connection:
        plant_videos(connection, "q", *references)
        # Ids against the order of creation, so that no accidental order saves us from deadlocks.
        ids = [plant_search(connection, "q", references, f"s{9 - n}") for n in range(4)]
        half = plant_search(connection, "q", references[::2], "half")
        opened = [row.id for row in read_pairs(connection)]
    random.Random(3).shuffle(opened)

    def work(part: list[int], holder: str) -> Callable[[], None]:
        return lambda: [finish(db, pair, holder) for pair in part] and None

    run_at_once(*(work(opened[n::4], f"w{n}") for n in range(4)))
    with transaction(db) as connection:
        for search in (*ids, half):
            state = searches.read_search(connection, search)
            assert (state.status, state.pairs_left) == ("done", 0)


def test_opening_races_with_finishing_and_no_search_is_left_waiting(db: Engine):
    rounds = 40
    references = [f"r{number}" for number in range(3)]
    with transaction(db) as connection:
        plant_videos(connection, *references, *(f"q{n}" for n in range(rounds)))
    for number in range(rounds):
        query = f"q{number}"
        with transaction(db) as connection:
            plant_search(connection, query, references, f"first-{number}")
            opened = [row.id for row in read_pairs(connection) if row.query_id == query]

        def open_second(query: str = query, number: int = number) -> None:
            with transaction(db) as connection:
                plant_search(connection, query, references, f"second-{number}")

        def finish_all(opened: list[int] = opened) -> None:
            for pair in opened:
                finish(db, pair)

        run_at_once(open_second, finish_all)
    with transaction(db) as connection:
        unfinished = connection.execute(
            text("SELECT id, status, pairs_left FROM searches WHERE status <> 'done'")
        ).all()
        assert unfinished == []
        assert searches.recount(connection) == 0


def test_opening_races_with_opening_without_deadlock_and_with_one_pair_each(db: Engine):
    references = [f"r{number:02}" for number in range(30)]
    with transaction(db) as connection:
        plant_videos(connection, "q", *references)

    def opening(name: str, order: list[str]) -> Callable[[], None]:
        def work() -> None:
            with transaction(db) as connection:
                plant_search(connection, "q", order, name)

        return work

    run_at_once(
        opening("up", references), opening("down", references[::-1]), opening("up", references)
    )
    with transaction(db) as connection:
        assert len(read_pairs(connection)) == 30
        for name in ("up", "down"):
            state = searches.read_search(connection, name)
            assert (state.pairs_total, state.pairs_left) == (30, 30)


def test_a_search_whose_pairs_were_all_done_before_is_done_at_once(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        plant_search(connection, "q", ["a", "b"])
        opened = read_pairs(connection)
    for pair in opened:
        finish(db, pair.id)
    with transaction(db) as connection:
        again = searches.create_search(connection, "q")
        wanted = [Candidate("q", "a", 1, 0.9), Candidate("q", "b", 2, 0.8)]
        assert pairs.open_pairs(connection, again, wanted, METHOD) == []
        state = searches.read_search(connection, again)
    assert (state.status, state.pairs_total, state.pairs_left) == ("done", 2, 0)


def test_a_search_without_candidates_is_done(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q")
        search = plant_search(connection, "q", [])
        assert searches.read_search(connection, search).status == "done"


def test_another_method_makes_other_pairs(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        plant_search(connection, "q", ["a"])
        search = searches.create_search(connection, "q")
        for method in (
            pairs.Method("transvcl-1", METHOD.fingerprint),
            pairs.Method(METHOD.model, "isc-1"),
        ):
            pairs.open_pairs(connection, search, [Candidate("q", "a", 1, 0.9)], method)
        assert len(read_pairs(connection)) == 3
        assert searches.read_search(connection, search).pairs_total == 2


def test_a_search_with_a_quarantined_pair_ends_incomplete_and_never_done(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        search = plant_search(connection, "q", ["a"])
        pair = read_pairs(connection)[0].id
        set_aside(connection, pair, "not_finite", "row 3 holds nan")
        state = searches.read_search(connection, search)
        [aside] = pairs.read_quarantined(connection, search)
    assert (state.status, state.pairs_left, state.pairs_quarantined) == ("incomplete", 0, 1)
    assert (aside.reference_id, aside.reason) == ("a", "not_finite")
    assert state.status.is_final


@pytest.mark.parametrize("is_last", [True, False])
def test_whichever_pair_is_the_last_a_search_with_a_quarantined_one_is_incomplete(
    db: Engine, is_last: bool
):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        search = plant_search(connection, "q", ["a", "b"])
        good, bad = (row.id for row in read_pairs(connection))
    if is_last:
        finish(db, good)
    with transaction(db) as connection:
        set_aside(connection, bad, "not_finite", "row 3 holds nan")
    finish(db, good)
    with transaction(db) as connection:
        assert searches.read_search(connection, search).status == "incomplete"


def test_more_references_do_not_make_an_incomplete_search_done(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        plant_search(connection, "q", ["a"], "s")
        set_aside(connection, read_pairs(connection)[0].id, "x", "x")
        plant_search(connection, "q", ["b"], "other")
        [_, second] = read_pairs(connection)
    finish(db, second.id)
    with transaction(db) as connection:
        plant_search(connection, "q", ["b"], "s")
        assert searches.read_search(connection, "s").status == "incomplete"


def test_a_clean_bill_of_an_earlier_release_is_taken_back_where_a_pair_was_set_aside(database: str):
    db = connect(database)
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        plant_search(connection, "q", ["a"], "bad")
        set_aside(connection, read_pairs(connection)[0].id, "x", "x")
        plant_search(connection, "q", ["b"], "good")
        [_, second] = read_pairs(connection)
    finish(db, second.id)
    migrate(database, "0009")
    with transaction(db) as connection:
        assert read_row(connection, "searches", "bad").status == "done"
    migrate(database)
    with transaction(db) as connection:
        assert searches.read_search(connection, "bad").status == "incomplete"
        assert searches.read_search(connection, "good").status == "done"


def test_what_was_given_up_is_retried_by_search_or_reason_and_its_searches_open_again(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "p", "a", "b")
        plant_search(connection, "q", ["a", "b"], "first")
        plant_search(connection, "p", ["a"], "second")
        for row, reason in zip(
            read_pairs(connection), ("not_found", "no_frames", "no_frames"), strict=True
        ):
            set_aside(connection, row.id, reason, "gone")
        assert pairs.retry_pairs(connection, "nothing has this reason") == 0
        assert pairs.retry_pairs(connection, "no_frames", "first") == 1
        state = searches.read_search(connection, "first")
        assert (state.status, state.pairs_left, state.seconds) == ("localizing", 1, None)
        assert searches.read_search(connection, "second").status == "incomplete"
        assert pairs.retry_pairs(connection) == 2
        assert searches.read_search(connection, "second").status == "localizing"
        assert {(row.attempts, row.sent_at) for row in read_pairs(connection)} == {(0, None)}
        opened = [row.id for row in read_pairs(connection)]
        assert searches.recount(connection) == 0
    for each in opened:
        finish(db, each)
    with transaction(db) as connection:
        assert {searches.read_search(connection, each).status for each in ("first", "second")} == {
            "done"
        }


def test_a_search_that_left_references_out_is_incomplete_and_can_be_planned_again(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        search = searches.create_search(connection, "q")
        searches.annotate_search(connection, search, "references_unreadable", "1 was left out")
        plant_search(connection, "q", ["a"], search)
    finish(db, 1)
    with transaction(db) as connection:
        assert searches.read_search(connection, search).status == "incomplete"
        assert searches.plan_again(connection, "another") == []
        assert searches.plan_again(connection) == [search]
        assert searches.read_search(connection, search).status == "waiting"
        plant_search(connection, "q", ["a"], search)
        assert searches.read_search(connection, search).status == "done"


def test_a_quarantined_pair_asked_for_again_gets_new_attempts_and_is_counted_right(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        early = plant_search(connection, "q", ["a", "b"], "early")
        first, second = (row.id for row in read_pairs(connection))
        connection.execute(text("UPDATE pairs SET attempts = 3"))
        set_aside(connection, first, "attempts_exhausted", "3 attempts failed")
        assert searches.read_search(connection, early).pairs_left == 1
        late = plant_search(connection, "q", ["a"], "late")
        assert read_row(connection, "pairs", first).attempts == 0
        # The early search is under way: it waits for the pair again.
        assert searches.read_search(connection, early).pairs_left == 2
    finish(db, first)
    with transaction(db) as connection:
        assert searches.read_search(connection, late).status == "done"
        assert searches.read_search(connection, early).status == "localizing"
        assert searches.recount(connection) == 0
    finish(db, second)
    with transaction(db) as connection:
        assert searches.read_search(connection, early).status == "done"


def test_the_same_search_opened_twice_counts_each_pair_once(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b", "c")
        plant_search(connection, "q", ["a", "b"], "s")
        plant_search(connection, "q", ["a", "b"], "s")
        plant_search(connection, "q", ["b", "c"], "s")
        state = searches.read_search(connection, "s")
        assert (state.pairs_total, state.pairs_left) == (3, 3)
        set_aside(connection, read_pairs(connection)[0].id, "x", "x")
        plant_search(connection, "q", ["a"], "s")
        state = searches.read_search(connection, "s")
        assert (state.pairs_total, state.pairs_left) == (3, 3)
        assert searches.recount(connection) == 0


def test_an_id_names_one_query_for_ever(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "p")
        assert searches.create_search(connection, "q", "s") == "s"
        assert searches.create_search(connection, "q", "s") == "s"
        with pytest.raises(Refused, match="search s already looks for 'q'"):
            searches.create_search(connection, "p", "s")


def test_recount_mends_counts_that_were_changed_by_hand(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        plant_search(connection, "q", ["a", "b"], "stuck")
        plant_search(connection, "q", ["a"], "right")
        connection.execute(text("UPDATE searches SET pairs_left = 7 WHERE id = 'stuck'"))
        assert searches.recount(connection) == 1
        assert searches.read_search(connection, "stuck").pairs_left == 2
        connection.execute(text("UPDATE pairs SET status = 'done'"))
        assert searches.recount(connection) == 2
        assert searches.read_search(connection, "stuck").status == "done"
        assert searches.recount(connection) == 0


def test_a_failed_search_that_is_opened_after_all_forgets_its_reason(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        searches.create_search(connection, "q", "s")
        searches.fail_search(connection, "s", "not_registered", "nobody registered it")
        assert searches.read_search(connection, "s").reason == "not_registered"
        plant_search(connection, "q", ["a"], "s")
        state = searches.read_search(connection, "s")
    assert (state.status, state.reason, state.message) == ("localizing", None, None)


def test_a_search_that_is_done_does_not_fail_later(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q")
        plant_search(connection, "q", [], "s")
        searches.fail_search(connection, "s", "late", "too late")
        assert searches.read_search(connection, "s").status == "done"


def test_waiting_ends_with_the_search_and_shows_every_state(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        plant_search(connection, "q", ["a"], "s")
        pair = read_pairs(connection)[0].id
    seen: list[str] = []

    def watch(state: dict) -> None:
        seen.append(state.status)
        if len(seen) == 2:
            finish(db, pair)

    assert searches.wait_for_search(db, "s", 20, watch).status == "done"
    assert seen[0] == "localizing"
    assert seen[-1] == "done"


def test_waiting_too_long_says_what_is_left_and_asks_for_a_worker(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "a")
        plant_search(connection, "q", ["a"], "s")
    with pytest.raises(Refused, match=r"1 of 1 pairs left.*`vcl worker`") as caught:
        searches.wait_for_search(db, "s", 0.01)
    assert caught.value.code == "timeout"


def test_waiting_outlasts_a_database_that_is_away_for_a_moment(db: Engine, monkeypatch):
    with transaction(db) as connection:
        plant_videos(connection, "q")
        plant_search(connection, "q", [], "s")
    away = connect("postgresql+psycopg2://vcl@127.0.0.1:1/vcl")
    answers = iter([away, db])
    monkeypatch.setattr(searches, "transaction", lambda _: transaction(next(answers)))
    assert searches.wait_for_search(db, "s", 20).status == "done"


def test_a_search_from_before_a_video_was_a_reference_does_not_count_for_it(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "upload", "film")
        for name in ("upload", "film"):
            catalogue.record_descriptors(connection, name, "lite0-test", "/d", 9, 256)
            plant_search(connection, name, [])
        assert searches.list_searched(connection, ["upload", "film"]) == {"upload", "film"}
        catalogue.make_reference(connection, "film")
        assert searches.list_searched(connection, ["upload", "film"]) == {"upload"}
        assert not searches.was_searched_as_reference(connection, "film")
    with transaction(db) as connection:
        search = searches.create_search(connection, "film")
        assert searches.list_searched(connection, ["film"]) == set(), "it is under way"
        assert searches.was_searched_as_reference(connection, "film")
        pairs.open_pairs(connection, search, [], METHOD)
        assert searches.list_searched(connection, ["film"]) == {"film"}


def test_a_search_nobody_asked_for_is_not_found(db: Engine):
    with transaction(db) as connection, pytest.raises(NotFound, match="no search nope"):
        searches.read_search(connection, "nope")


def test_searches_are_listed_page_by_page_the_newest_first(database: str) -> None:
    with transaction(connect(database)) as connection:
        catalogue.register_foreign(connection, "film", None, duration=10.0)
        for number in range(5):
            name = "ana" if number % 2 else None
            searches.create_search(connection, "film", f"search {number}", asked_by=name)
        connection.execute(
            text("UPDATE searches SET created_at = now() - random() * '1h'::interval")
        )
        seen, after = [], None
        while True:
            page = searches.list_searches(connection, limit=2, after=after)
            seen += page.rows
            if (after := page.next) is None:
                break
        mine = searches.list_searches(connection, asked_by="ana")
        with pytest.raises(Refused, match="cursor"):
            searches.list_searches(connection, after="bm9uZQ")
    assert [each.created_at for each in seen] == sorted(
        (each.created_at for each in seen), reverse=True
    )
    assert {each.search_id for each in seen} == {f"search {number}" for number in range(5)}
    assert {each.search_id for each in mine.rows} == {"search 1", "search 3"}
