"""Whatever is killed while pairs are in work: each is done, once."""

from __future__ import annotations

import pytest

from tests.faults.ground import Ground
from tests.faults.work import Work

FAULTS = [
    "a child killed",
    "a worker killed",
    "a worker, its parent and its children killed",
    "the broker killed",
    "the broker killed and its files lost",
    "PostgreSQL killed",
    "a child stopped",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_and_nothing_doubled(ground: Ground, fault: str) -> None:
    work = Work(ground.site, queries=4, references=10, assets=2)
    seconds = ground.strike(work, fault)
    work.wait()
    ground.wake_stopped()
    count = work.count()
    print(f"{fault}: {count}, well again after {seconds:.1f} s")
    assert (count.lost, count.doubled, count.quarantined) == (0, 0, 0)
