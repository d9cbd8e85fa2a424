"""What got lost between database and broker is named again, and nothing else is."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.settings import Settings
from retrieval.work import catalogue, leases, searches, unsettled
from retrieval.work.messages import (
    BULK,
    INGEST,
    LOCALIZE,
    SEARCH,
    URGENT,
    URGENT_PAIRS,
    Message,
)
from retrieval.work.sweeper import DOUBTFUL_LEASES, mark_unsent, sweep
from tests.retrieval.planted_rows import pass_time, plant_search, plant_videos, read_pairs, read_row

SETTINGS = Settings(lease_seconds=60, max_attempts=2)


def sweep_with(db: Engine, *full_queues: str) -> list[Message]:
    return sweep(db, SETTINGS, lambda task: 99 if task in full_queues else 0)


def localize(reference: str, priority: int = URGENT) -> Message:
    return Message(LOCALIZE, {"query_id": "q", "reference_ids": [reference]}, priority)


@pytest.fixture
def rows(db: Engine) -> None:
    """A waiting video, a waiting search and two waiting pairs, all just sent."""
    with transaction(db) as connection:
        catalogue.register_file(connection, Path("/v"), "ab" * 32, "v")
        plant_videos(connection, "q", "a", "b")
        searches.create_search(connection, "q", "unplanned")
        plant_search(connection, "q", ["a", "b"], "planned")


@pytest.mark.usefixtures("rows")
def test_what_was_just_sent_is_left_to_the_broker(db: Engine):
    assert sweep_with(db) == []


@pytest.mark.usefixtures("rows")
def test_what_was_sent_long_ago_is_lost_when_its_queue_is_empty(db: Engine):
    for table in ("videos", "searches", "pairs"):
        pass_time(db, table, 61)
    assert sweep_with(db, INGEST, SEARCH, LOCALIZE) == []
    assert sweep_with(db, SEARCH, LOCALIZE) == [Message(INGEST, {"video_id": "ab" * 8})]
    assert sweep_with(db, LOCALIZE) == [Message(SEARCH, {"search_id": "unplanned"})]
    assert sweep_with(db) == [
        localize("a"),
        localize("b"),
    ]
    assert sweep_with(db) == [], "named again means sent again: the broker has it now"


@pytest.mark.usefixtures("rows")
def test_a_message_is_doubted_in_the_end_though_its_queue_is_never_empty(db: Engine):
    pass_time(db, "pairs", 60 * DOUBTFUL_LEASES + 1)
    assert sweep(db, SETTINGS, lambda task: 2) == [], "a message for each of the two"
    assert sweep(db, SETTINGS, lambda task: 1) == [localize("a"), localize("b")]
    assert sweep(db, SETTINGS, lambda task: 1) == [], "sent again is in no doubt"


def test_pairs_of_a_scan_are_sent_again_after_those_of_a_small_search(db: Engine):
    many = [f"r{number}" for number in range(URGENT_PAIRS + 1)]
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", *many)
        plant_search(connection, "q", many, "scan")
        plant_search(connection, "q", ["a", "r7"], "small")
    pass_time(db, "pairs", 61)
    found = sweep_with(db)
    assert found[:2] == [localize("r7"), localize("a")], "what both ask for is urgent"
    assert set(map(str, found[2:])) == {str(localize(name, BULK)) for name in many if name != "r7"}


@pytest.mark.usefixtures("rows")
def test_a_failed_attempt_is_sent_again_at_once_whatever_the_queue_holds(db: Engine):
    with transaction(db) as connection:
        pair = read_pairs(connection)[0].id
        leases.acquire(connection, "pairs", [pair], "w", 60)
        leases.give_back(connection, "pairs", pair, "w", "localizer_failed", "no memory")
    message = localize("a")
    assert sweep_with(db, INGEST, SEARCH, LOCALIZE) == [message]


@pytest.mark.usefixtures("rows")
def test_work_under_way_is_left_alone_and_a_silent_worker_s_is_sent_again(db: Engine):
    with transaction(db) as connection:
        pair = read_pairs(connection)[0].id
        leases.acquire(connection, "pairs", [pair], "w", 60)
        leases.acquire(connection, "searches", ["unplanned"], "w", 60)
    assert sweep_with(db, LOCALIZE, SEARCH) == []
    pass_time(db, "pairs", 61)
    pass_time(db, "searches", 61)
    assert sweep_with(db, LOCALIZE, SEARCH) == [
        Message(SEARCH, {"search_id": "unplanned"}),
        localize("a"),
    ]


@pytest.mark.usefixtures("rows")
def test_pairs_without_attempts_left_are_set_aside_and_their_search_ends(db: Engine):
    with transaction(db) as connection:
        ids = [row.id for row in read_pairs(connection)]
    for _ in range(SETTINGS.max_attempts):
        with transaction(db) as connection:
            assert leases.acquire(connection, "pairs", ids, "w", 60) == ids
        pass_time(db, "pairs", 61)
        messages = sweep_with(db)
    assert not [each for each in messages if each.task == LOCALIZE]
    with transaction(db) as connection:
        state = searches.read_search(connection, "planned")
        assert {row.status for row in read_pairs(connection)} == {"quarantined"}
    assert (state.status, state.pairs_left, state.pairs_quarantined) == ("incomplete", 0, 2)


@pytest.mark.usefixtures("rows")
def test_a_search_that_never_gets_planned_fails_with_the_reason(db: Engine):
    for _ in range(SETTINGS.max_attempts):
        with transaction(db) as connection:
            leases.acquire(connection, "searches", ["unplanned"], "w", 60)
        pass_time(db, "searches", 61)
        sweep_with(db)
    with transaction(db) as connection:
        state = searches.read_search(connection, "unplanned")
    assert (state.status, state.reason) == ("failed", "attempts_exhausted")


@pytest.mark.usefixtures("rows")
def test_a_count_that_drifted_is_mended(db: Engine):
    with transaction(db) as connection:
        connection.execute(text("UPDATE pairs SET status = 'done'"))
    sweep_with(db)
    with transaction(db) as connection:
        assert searches.read_search(connection, "planned").status == "done"


@pytest.mark.usefixtures("rows")
def test_a_message_that_only_settles_is_sent_again_when_the_broker_did_not_take_it(db: Engine):
    settle = Message(LOCALIZE, {"query_id": "q", "reference_ids": []})
    with transaction(db) as connection:
        assert mark_unsent(connection, [settle]) == []
    assert sweep_with(db, LOCALIZE) == [settle]
    assert sweep_with(db) == [], "it was just sent"


@pytest.mark.usefixtures("rows")
def test_a_settling_whose_message_the_broker_lost_is_sent_again_until_it_is_done(db: Engine):
    settle = Message(LOCALIZE, {"query_id": "q", "reference_ids": []})
    with transaction(db) as connection:
        unsettled.note(connection, "q")
    assert sweep_with(db) == []
    pass_by(db, 61)
    assert sweep_with(db, LOCALIZE) == []
    assert sweep_with(db) == [settle]
    pass_by(db, DOUBTFUL_LEASES * 60 + 1)
    assert sweep_with(db, LOCALIZE) == [settle]
    with transaction(db) as connection:
        asked = unsettled.read_asking(connection, "q")
        unsettled.note(connection, "q")  # somebody asks again, while the first is settled
        unsettled.forget(connection, "q", asked)
        again = unsettled.read_asking(connection, "q")
        assert again is not None
        unsettled.forget(connection, "q", again)
    pass_by(db, DOUBTFUL_LEASES * 60 + 1)
    assert sweep_with(db) == []


def pass_by(db: Engine, seconds: float) -> None:
    with transaction(db) as connection:
        connection.execute(
            text("UPDATE unsettled SET sent_at = sent_at - make_interval(secs => :seconds)"),
            {"seconds": seconds},
        )


@pytest.mark.usefixtures("rows")
def test_one_sweeps_at_a_time(db: Engine):
    for table in ("videos", "searches", "pairs"):
        pass_time(db, table, 61)
    found: list[list[Message]] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        found.append(sweep_with(db))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, found)) == [0, 0, 0, 4]


@pytest.mark.usefixtures("rows")
def test_messages_the_broker_did_not_take_are_sent_by_the_next_sweep(db: Engine):
    unsent = [
        Message(INGEST, {"video_id": "ab" * 8}),
        Message(SEARCH, {"search_id": "unplanned"}),
        Message(LOCALIZE, {"query_id": "q", "reference_ids": ["a"], "search_id": "planned"}),
    ]
    with transaction(db) as connection:
        mark_unsent(connection, unsent)
        assert read_row(connection, "searches", "unplanned").sent_at is None
    assert [each.task for each in sweep_with(db, INGEST, SEARCH, LOCALIZE)] == [
        INGEST,
        SEARCH,
        LOCALIZE,
    ]
