"""A worker that lives but takes nothing is told from one that is idle, busy or slow."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from retrieval.database import transaction
from retrieval.work import leases
from retrieval.work.watchdog import Look, Watchdog, is_working
from tests.retrieval.planted_rows import pass_time, plant_search, plant_videos, read_pairs

SILENT = Look(("a message", None), is_working=False)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def judge(*looks: Look, pause: float = 10.0, patience: float = 30.0) -> list[bool]:
    """The watchdog's answers to looks that are `pause` seconds apart."""
    clock = Clock()
    watchdog = Watchdog(patience, clock)
    answers = []
    for look in looks:
        answers.append(watchdog.has_stalled(look))
        clock.now += pause
    return answers


def test_the_same_message_waiting_while_nobody_works_is_a_stall():
    assert judge(*[SILENT] * 5) == [False, False, False, True, True]


def test_an_empty_queue_is_no_stall():
    assert not any(judge(*[Look((None, None), is_working=False)] * 9))


def test_a_long_piece_of_work_is_no_stall():
    assert not any(judge(*[Look(("a message", None), is_working=True)] * 9))


def test_a_queue_that_moves_is_no_stall():
    assert not any(judge(*[Look((f"message {n}",), is_working=False) for n in range(9)]))


def test_the_wait_counts_from_the_last_sign_of_life():
    working = Look(("a message", None), is_working=True)
    assert judge(SILENT, SILENT, working, SILENT, SILENT, SILENT, SILENT) == [False] * 6 + [True]


def test_a_worker_started_anew_gets_twice_the_time():
    clock = Clock()
    watchdog = Watchdog(30, clock)
    watchdog.has_stalled(SILENT)
    clock.now = 31
    assert watchdog.has_stalled(SILENT)
    watchdog.forgive()
    waits = []
    for clock.now in (32, 91, 92):
        waits.append(watchdog.has_stalled(SILENT))
    assert waits == [False, False, True]


@pytest.mark.parametrize(
    ("sign", "is_usual"),
    [
        (Look(("a message", None), is_working=True), True),
        (Look(("the next message", None), is_working=False), False),
        (Look((None, None), is_working=False), False),
        (Look(("a message", "a new one"), is_working=False), False),
    ],
    ids=["a lease", "a message fetched ahead", "the last one fetched", "a message that came"],
)
def test_only_a_worker_that_works_is_watched_as_closely_as_before(sign: Look, is_usual: bool):
    clock = Clock()
    watchdog = Watchdog(30, clock)
    for _ in range(3):
        watchdog.forgive()
    watchdog.has_stalled(SILENT)
    watchdog.has_stalled(sign)
    assert watchdog.patience == (30 if is_usual else 240)


def test_work_counts_while_its_lease_lasts_and_only_this_machine_s(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "q", "r", "t")
        plant_search(connection, "q", ["r", "t"], "s")
        first, second = [row.id for row in read_pairs(connection)]
        leases.acquire(connection, "pairs", [first], "elsewhere:1:ab", 60)
    assert not is_working(db)
    with transaction(db) as connection:
        leases.acquire(connection, "pairs", [second], leases.new_holder(), 60)
    assert is_working(db)
    pass_time(db, "pairs", 61)
    assert not is_working(db)
