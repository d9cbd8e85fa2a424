"""Faults for as long as you like, and the table of docs/measurements/faults.md.

Run: make soak, or python -m tests.faults.soak --minutes 10 --seed 1

First each fault by itself, then several at once, then random ones until the time is over. The seed
decides which process is hit and when; what the machine does meanwhile it cannot decide, so a seed
repeats the plan and not the run. Exit code 1 if anything was lost or doubled, or if a search says
`done` with a pair that was not compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field

from tests.end_to_end.conftest import wait_until
from tests.faults.ground import Ground, open_ground
from tests.faults.localizer import Mark
from tests.faults.work import Count, Work

PATIENCE = 900.0  # for a whole piece of work under fire, on a busy machine
TOGETHER = (
    "a child killed",
    "PostgreSQL killed",
    "the broker killed and its files lost",
    "a worker killed",
)
MARKS = {3: Mark.ABORT, 8: Mark.RAISE, 13: Mark.HANG}


@dataclass
class Row:
    """A line of the table: one kind of fault, and what it cost."""

    fault: str
    counts: list[Count] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    strikes: int = 0

    def total(self, name: str) -> int:
        return sum(int(getattr(count, name)) for count in self.counts)

    def as_markdown(self) -> str:
        seconds = f"{max(self.recoveries):.1f}" if self.recoveries else ""
        names = ("pairs", "lost", "doubled", "unearned", "repeated", "quarantined")
        cells = [self.fault, self.strikes, *map(self.total, names), seconds]
        return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--queries", type=int, default=12)
    parser.add_argument("--references", type=int, default=20)
    arguments = parser.parse_args()
    print(
        f"seed {arguments.seed}, {arguments.queries * arguments.references} pairs a piece of work"
    )
    deadline = time.monotonic() + 60 * arguments.minutes
    rows: list[Row] = []
    with open_ground(seed=arguments.seed, pace=0.05, VCL_TASK_SECONDS="30") as ground:
        size = (arguments.queries, arguments.references)
        try:
            for faults in ((), *((each,) for each in ground.faults), TOGETHER):
                rows.append(_one_by_one(ground, size, faults))
            rows.append(_poison(ground, arguments.references))
            rows.append(_at_random(ground, size, deadline))
        except AssertionError:  # the home with its log is gone when it is told
            print(ground.site.worker_log.read_text(encoding="utf-8")[-8000:], file=sys.stderr)
            raise
    heads = "fault, times, pairs, lost, doubled, false `done`, begun again, set aside, seconds"
    print("\n| " + heads.replace(", ", " | ") + " |")
    print("|---" * len(heads.split(", ")) + "|")
    for row in rows:
        print(row.as_markdown())
    bad = sum(row.total(name) for row in rows for name in ("lost", "doubled", "unearned"))
    sys.exit(f"{bad} pairs, searches or claims are lost, doubled or not true" if bad else 0)


def _one_by_one(ground: Ground, size: tuple[int, int], faults: tuple[str, ...]) -> Row:
    row = Row(" + ".join(faults) or "none", strikes=len(faults))
    work = Work(ground.site, *size, assets=4)
    if faults:
        row.recoveries.append(ground.strike(work, *faults))
    else:
        work.send()
    return _finish(ground, work, row)


def _poison(ground: Ground, references: int) -> Row:
    """Pairs that abort, raise and hang; the others have to be done all the same."""
    queries = 2  # each hanging pair takes a process for half a minute, three times
    row = Row("references that abort, raise or hang", strikes=len(MARKS) * queries)
    work = Work(ground.site, queries, references, assets=4, marks=MARKS)
    work.send()
    return _finish(ground, work, row)


def _at_random(ground: Ground, size: tuple[int, int], deadline: float) -> Row:
    """Attempts are many here, because no site has a fault every few seconds."""
    row = Row("random ones, every 1 to 8 s")
    ground.site.stop_workers()
    ground.site.environment["VCL_MAX_ATTEMPTS"] = "20"
    for _ in range(2):
        ground.site.start_worker()
    ground.wait_until_ready()
    while time.monotonic() < deadline:
        work = Work(ground.site, *size, assets=4)
        work.send()
        while work.left() and time.monotonic() < deadline:
            time.sleep(ground.random.uniform(1, 8))
            fault = ground.random.choice(sorted(ground.faults))
            if work.running():
                print(f"  {fault}", flush=True)
                ground.faults[fault](work)
                row.strikes += 1
            ground.tend()
            if ground.random.random() < 0.5:
                ground.wake_stopped()
        _finish(ground, work, row)
    return row


def _finish(ground: Ground, work: Work, row: Row) -> Row:
    started = time.monotonic()
    wait_until(lambda: ground.tend() or work.is_over(), PATIENCE)
    ground.settle()
    row.counts.append(work.count())
    well = "".join(f"well again after {each:.1f} s, " for each in row.recoveries)
    ended = f"ended {time.monotonic() - started:.1f} s later"
    print(f"{row.fault}: {row.counts[-1]}, {well}{ended}", flush=True)
    return row


if __name__ == "__main__":
    main()
