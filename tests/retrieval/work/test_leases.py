"""A row belongs to one holder until the lease runs out, by the database's clock."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.work import catalogue, leases, pairs, searches
from tests.retrieval.planted_rows import (
    pass_time,
    plant_search,
    plant_videos,
    read_pairs,
    read_row,
)


@pytest.fixture
def pair_ids(db: Engine) -> list[int]:
    """Twenty waiting pairs of one search."""
    references = [f"r{number:02}" for number in range(20)]
    with transaction(db) as connection:
        plant_videos(connection, "q", *references)
        plant_search(connection, "q", references, "s")
        return [row.id for row in read_pairs(connection)]


def test_holders_are_never_the_same_even_in_one_process():
    assert leases.new_holder() != leases.new_holder()


def test_a_leased_row_is_nobody_else_s(db: Engine, pair_ids: list[int]):
    with transaction(db) as connection:
        assert leases.acquire(connection, "pairs", pair_ids[:3], "a", 60) == pair_ids[:3]
        assert leases.acquire(connection, "pairs", pair_ids[:4], "b", 60) == [pair_ids[3]]
        assert leases.holds(connection, "pairs", pair_ids[0], "a")
        assert not leases.holds(connection, "pairs", pair_ids[0], "b")


def test_of_holders_that_ask_at_once_exactly_one_gets_each_row(db: Engine, pair_ids: list[int]):
    taken: dict[str, list[int]] = {}
    barrier = threading.Barrier(6)

    def ask(holder: str) -> None:
        barrier.wait()
        with transaction(db) as connection:
            taken[holder] = leases.acquire(connection, "pairs", pair_ids, holder, 60)

    threads = [threading.Thread(target=ask, args=(f"h{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each for ids in taken.values() for each in ids) == pair_ids
    with transaction(db) as connection:
        for holder, ids in taken.items():
            assert all(leases.holds(connection, "pairs", each, holder) for each in ids)


def test_a_row_that_a_transaction_holds_is_waited_for_not_passed_over(
    db: Engine, pair_ids: list[int]
):
    taken: list[int] = []

    def ask() -> None:
        with transaction(db) as connection:
            taken.extend(leases.acquire(connection, "pairs", pair_ids, "a", 60))

    thread = threading.Thread(target=ask)
    with transaction(db) as connection:
        connection.execute(
            text("SELECT 1 FROM pairs WHERE id = :id FOR UPDATE"), {"id": pair_ids[4]}
        )
        thread.start()
        thread.join(0.3)
        assert taken == []
    thread.join()
    assert taken == pair_ids


def test_a_lease_that_ran_out_can_be_taken_and_the_old_holder_has_lost_it(
    db: Engine, pair_ids: list[int]
):
    with transaction(db) as connection:
        leases.acquire(connection, "pairs", pair_ids[:1], "a", 60)
    pass_time(db, "pairs", 61)
    with transaction(db) as connection:
        assert leases.acquire(connection, "pairs", pair_ids[:1], "b", 60) == [], "not yet counted"
        assert leases.expire(connection, "pairs", 3) == []
        assert leases.acquire(connection, "pairs", pair_ids[:1], "b", 60) == pair_ids[:1]
        assert not leases.holds(connection, "pairs", pair_ids[0], "a")
        pairs.finish_pair(connection, pair_ids[0], "a")
        assert read_row(connection, "pairs", pair_ids[0]).status == "running"
        leases.give_back(connection, "pairs", pair_ids[0], "a", "late", "too late")
        assert read_row(connection, "pairs", pair_ids[0]).leased_by == "b"


def test_a_heartbeat_keeps_work_that_lasts_longer_than_its_lease(db: Engine, pair_ids: list[int]):
    with transaction(db) as connection:
        leases.acquire(connection, "pairs", pair_ids[:1], "a", 0.6)
    with leases.heartbeat(db, "pairs", pair_ids[:1], "a", 0.6):
        for _ in range(6):
            time.sleep(0.25)
            with transaction(db) as connection:
                assert leases.expire(connection, "pairs", 3) == []
                assert leases.acquire(connection, "pairs", pair_ids[:1], "b", 60) == []
    time.sleep(0.8)
    with transaction(db) as connection:
        assert leases.expire(connection, "pairs", 3) == []
        assert leases.acquire(connection, "pairs", pair_ids[:1], "b", 60) == pair_ids[:1]


def test_a_heartbeat_does_not_take_back_what_was_lost(db: Engine, pair_ids: list[int]):
    with transaction(db) as connection:
        leases.acquire(connection, "pairs", pair_ids[:1], "a", 60)
    pass_time(db, "pairs", 61)
    with transaction(db) as connection:
        leases.expire(connection, "pairs", 3)
        leases.acquire(connection, "pairs", pair_ids[:1], "b", 0.1)
    with leases.heartbeat(db, "pairs", pair_ids[:1], "a", 0.3):
        time.sleep(0.4)
        with transaction(db) as connection:
            row = read_row(connection, "pairs", pair_ids[0])
            is_over = connection.execute(text("SELECT now() > :at"), {"at": row.lease_until})
            assert row.leased_by == "b"
            assert is_over.scalar()


def test_a_heartbeat_goes_on_for_the_others_while_one_row_is_being_finished(
    db: Engine, pair_ids: list[int]
):
    first, second = pair_ids[:2]
    with transaction(db) as connection:
        leases.acquire(connection, "pairs", [first, second], "a", 60)
        before = read_row(connection, "pairs", second).lease_until
    with transaction(db) as finishing:
        assert leases.holds(finishing, "pairs", first, "a")
        with leases.heartbeat(db, "pairs", [first, second], "a", 0.3):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with transaction(db) as connection:
                    if read_row(connection, "pairs", second).lease_until != before:
                        return
                time.sleep(0.05)
    pytest.fail("the heartbeat waited for the locked row")


def test_an_attempt_that_is_put_off_does_not_count(db: Engine, pair_ids: list[int]):
    with transaction(db) as connection:
        leases.acquire(connection, "pairs", pair_ids[:1], "a", 60)
        leases.put_off(connection, "pairs", pair_ids[0], "b", "store_full", "not b's to put off")
        assert read_row(connection, "pairs", pair_ids[0]).status == "running"
        leases.put_off(connection, "pairs", pair_ids[0], "a", "store_full", "no room")
        row = read_row(connection, "pairs", pair_ids[0])
    assert (row.status, row.reason, row.message) == ("waiting", "store_full", "no room")
    assert (row.attempts, row.leased_by) == (0, None)
    assert row.sent_at is not None, "its message comes again by itself"


def test_a_row_given_back_waits_again_and_remembers_why(db: Engine, pair_ids: list[int]):
    with transaction(db) as connection:
        leases.acquire(connection, "pairs", pair_ids[:1], "a", 60)
        leases.give_back(connection, "pairs", pair_ids[0], "a", "localizer_failed", "no memory")
        row = read_row(connection, "pairs", pair_ids[0])
    assert (row.status, row.reason, row.message) == ("waiting", "localizer_failed", "no memory")
    assert (row.attempts, row.leased_by, row.sent_at) == (1, None, None)


def test_a_row_given_back_after_its_last_attempt_is_not_tried_once_more(
    db: Engine, pair_ids: list[int]
):
    with transaction(db) as connection:
        for holder in ("a", "b"):
            assert leases.acquire(connection, "pairs", pair_ids[:1], holder, 60, 2)
            leases.give_back(connection, "pairs", pair_ids[0], holder, "localizer_failed", "no")
        assert leases.acquire(connection, "pairs", pair_ids[:2], "c", 60, 2) == pair_ids[1:2]
        assert leases.give_up(connection, "pairs", 2) == pair_ids[:1]


def test_a_silent_holder_s_row_waits_again_until_attempts_are_used_up(
    db: Engine, pair_ids: list[int]
):
    for attempt in (1, 2, 3):
        with transaction(db) as connection:
            assert leases.acquire(connection, "pairs", pair_ids[:1], f"w{attempt}", 60)
        pass_time(db, "pairs", 61)
        with transaction(db) as connection:
            given_up = leases.expire(connection, "pairs", 3)
            row = read_row(connection, "pairs", pair_ids[0])
        if attempt < 3:
            assert given_up == []
            assert (row.status, row.reason, row.attempts) == ("waiting", "worker_lost", attempt)
            assert f"w{attempt}" in row.message
    assert given_up == pair_ids[:1]
    assert (row.status, row.reason) == ("quarantined", "attempts_exhausted")
    assert row.message.startswith("3 attempts failed, the last: the worker w3")
    assert row.finished_at is not None


def test_what_failed_the_last_time_stands_in_the_verdict(db: Engine, pair_ids: list[int]):
    with transaction(db) as connection:
        leases.acquire(connection, "pairs", pair_ids[:1], "a", 60)
        leases.give_back(connection, "pairs", pair_ids[0], "a", "localizer_failed", "no memory")
        assert leases.expire(connection, "pairs", 1) == pair_ids[:1]
        row = read_row(connection, "pairs", pair_ids[0])
    assert row.message == "1 attempts failed, the last: no memory"


@pytest.mark.parametrize("table", ["videos", "searches"])
def test_videos_and_searches_without_attempts_left_fail_with_the_reason(db: Engine, table: str):
    with transaction(db) as connection:
        row_id = catalogue.register_file(connection, Path("/x"), "ab" * 32, "x")
        if table == "searches":
            row_id = searches.create_search(connection, row_id)
        leases.acquire(connection, table, [row_id], "a", 60)
    pass_time(db, table, 61)
    with transaction(db) as connection:
        assert leases.expire(connection, table, 1) == [row_id]
        row = read_row(connection, table, row_id)
    assert (row.status, row.reason) == ("failed", "attempts_exhausted")


def test_only_tables_of_leased_work_can_be_leased(db: Engine):
    with transaction(db) as connection, pytest.raises(ValueError, match="claims"):
        leases.acquire(connection, "claims", [1], "a", 60)
