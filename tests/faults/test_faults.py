"""Whatever breaks while pairs are in work: each is done, once; what cannot be done says why.

One file, because its tests share one site: starting it costs more than most of its faults.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.conftest import PATIENCE, wait_until
from tests.faults.ground import Clock, Ground
from tests.faults.localizer import Mark
from tests.faults.work import Work
from vcl_plugin.demo.footage import render_reference

FAULTS = [
    "a child killed",
    "a worker killed",
    "a worker, its parent and its children killed",
    "the broker killed",
    "the broker killed and its files lost",
    "PostgreSQL killed",
    "a child stopped",
    "a process that fails at everything",
    "the store unmounted",
    "a lease lost",
    "another version beside, or gone again",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_and_nothing_doubled(ground: Ground, fault: str) -> None:
    work = Work(ground.site, queries=4, references=12, assets=2)
    seconds = ground.strike(work, fault)
    work.wait()
    ground.settle()
    count = work.count()
    print(f"{fault}: {count}, well again after {seconds:.1f} s")
    assert (count.lost, count.doubled, count.quarantined, count.unearned) == (0, 0, 0, 0)


def test_nothing_is_lost_and_nothing_doubled_by_faults_together(ground: Ground) -> None:
    work = Work(ground.site, queries=6, references=12, assets=2)
    seconds = ground.strike(
        work,
        "a child killed",
        "PostgreSQL killed",
        "the broker killed and its files lost",
        "a worker killed",
    )
    work.wait()
    count = work.count()
    print(f"together: {count}, well again after {seconds:.1f} s")
    assert (count.lost, count.doubled, count.quarantined) == (0, 0, 0)


def test_a_count_sees_what_is_lost_and_what_is_doubled(ground: Ground) -> None:
    work = Work(ground.site, queries=1, references=3)
    work.send()
    work.wait()
    assert (work.count().lost, work.count().doubled) == (0, 0)
    segment = work.ask(
        "INSERT INTO segments (run_id, query_id, reference_id, query_span, reference_span, score,"
        " is_reversed, speed) SELECT run_id, query_id, reference_id, query_span, reference_span,"
        " score, is_reversed, speed FROM segments WHERE reference_id = %s RETURNING id",
        work.reference(0),
    )
    assert (work.count().lost, work.count().doubled) == (0, 1)
    work.ask("DELETE FROM segments WHERE id = %s RETURNING id", *segment[0])
    work.ask("DELETE FROM segments WHERE reference_id = %s RETURNING id", work.reference(1))
    assert (work.count().lost, work.count().doubled) == (1, 0)
    work.ask("UPDATE claims SET segments = 2 WHERE query_id = %s RETURNING id", work.query(0))
    assert (work.count().lost, work.count().doubled) == (2, 0)
    work.ask(
        "UPDATE searches SET status = 'localizing' WHERE id = %s RETURNING id", work.searches[0]
    )
    # A sweep mends a search without open pairs, sooner or later than this question.
    assert work.count().lost in (2, 3)


def test_a_count_sees_a_search_that_is_done_with_a_pair_not_compared(ground: Ground) -> None:
    work = Work(ground.site, queries=1, references=3)
    work.send()
    work.wait()
    assert work.count().unearned == 0
    work.ask(
        "UPDATE pairs SET status = 'quarantined', reason = 'made_up' WHERE reference_id = %s"
        " RETURNING id",
        work.reference(2),
    )
    assert work.count().unearned == 1


def test_pairs_that_break_their_process_are_set_aside_and_stop_no_other(ground: Ground) -> None:
    work = Work(
        ground.site,
        queries=2,
        references=10,
        marks={3: Mark.ABORT, 5: Mark.RAISE, 7: Mark.HANG},
    )
    work.send()
    work.wait(3 * PATIENCE)  # the hanging ones are killed after 30 s, three times
    count = work.count()
    assert (count.lost, count.doubled, count.quarantined) == (0, 0, 6)
    aside = work.ask(
        "SELECT reference_id, attempts, reason, message FROM pairs"
        " WHERE status = 'quarantined' AND query_id LIKE %s",
        f"{work.name} query %",
    )
    by_mark = {work.marks[int(name.split()[-1])]: facts for name, *facts in aside}
    assert {tuple(facts[:2]) for facts in by_mark.values()} == {(3, "attempts_exhausted")}
    assert "stopped before it was done" in by_mark[Mark.ABORT][2]
    assert "stopped before it was done" in by_mark[Mark.HANG][2]
    assert "ArithmeticError: this reference cannot be compared" in by_mark[Mark.RAISE][2]


def test_a_full_store_lets_videos_wait_and_loses_none(ground: Ground, tmp_path: Path) -> None:
    film = render_reference(tmp_path / "film.mp4", seed=1, seconds=3, size=(160, 120))
    site = ground.site
    site.vcl_json("asset", "add", "Film", "--owner", "Full")
    with ground.full_store():
        [row] = site.vcl_json("reference", "add", film, "--asset", "Film")
        tries: set[object] = set()  # one more than a video that is to blame would get

        def has_tried_often() -> bool:
            tries.add(site.sql("SELECT sent_at FROM videos WHERE id = %s", row["id"])[0])
            return len(tries) > 5

        wait_until(has_tried_often)
        [facts] = site.sql("SELECT reason, message FROM videos WHERE id = %s", row["id"])
        assert facts[0] == "store_full"
        assert "there is no room for" in facts[1]
    wait_until(
        lambda: site.sql("SELECT status FROM videos WHERE id = %s", row["id"]) == [("ready",)]
    )


def test_a_full_store_and_other_faults_together_lose_nothing(
    ground: Ground, tmp_path: Path
) -> None:
    film = render_reference(tmp_path / "other.mp4", seed=2, seconds=3, size=(160, 120))
    site = ground.site
    site.vcl_json("asset", "add", "Other film", "--owner", "Full")
    work = Work(site, queries=4, references=12, assets=2)
    with ground.full_store():
        [row] = site.vcl_json("reference", "add", film, "--asset", "Other film")
        question = "SELECT status, reason FROM videos WHERE id = %s"
        wait_until(lambda: site.sql(question, row["id"])[0][1] == "store_full")
        ground.strike(work, "a child killed", "PostgreSQL killed", "the broker killed")
        assert site.sql(question, row["id"])[0][0] != "ready"
    work.wait()
    count = work.count()
    assert (count.lost, count.doubled, count.quarantined) == (0, 0, 0)
    wait_until(lambda: site.sql(question, row["id"])[0][0] == "ready")


def test_a_small_search_does_not_wait_for_a_scan(ground: Ground) -> None:
    scan = Work(ground.site, queries=1, references=400, copied_every=40)
    small = Work(ground.site, queries=1, references=4)
    ground.wait_until_ready()
    with ground.shut():
        scan.send()
        ground.wait_until_all_work(scan)
        wait_until(lambda: len(scan.unfinished()) == 400)
        small.send()
    small.wait()
    scan.wait()
    [(before,)] = small.ask(
        "SELECT count(*) FROM pairs WHERE query_id = %s AND finished_at <"
        " (SELECT max(finished_at) FROM pairs WHERE query_id = %s)",
        scan.query(0),
        small.query(0),
    )
    print(f"{before} of 400 pairs of the scan were finished before the small search")
    # In the order of their sending it would be all but the few in work beside it.
    assert before < 300


def test_two_versions_side_by_side_set_no_pair_aside(ground: Ground) -> None:
    """As while a site is upgraded: each worker has a localizer of its own."""
    older, newer = ground.site.workers[0], ground.site.start_worker(VCL_LOCALIZER="newer")
    third = ground.site.start_worker(VCL_LOCALIZER="newer")
    # More messages than processes: each of them opens a search, and asks for its own localizer.
    works = [Work(ground.site, queries=10, references=8, assets=2) for _ in range(2)]
    ground.wait_until_ready()
    with ground.shut():
        works[0].send()
        ground.wait_until_all_work(works[0])
        works[1].send()
    for work in works:
        work.wait()
        count = work.count()
        print(f"two versions: {count}")
        assert (count.lost, count.doubled, count.quarantined) == (0, 0, 0)
    models = works[0].ask("SELECT model, count(*) FROM pairs WHERE status = 'done' GROUP BY 1")
    assert {"marked-1", "marked-2"} <= dict(models).keys()
    assert older.poll() is None
    ground.site.stop(newer, third)


def test_workers_on_a_newer_schema_end_and_leave_their_messages(ground: Ground) -> None:
    """As when somebody migrates before the last old worker was stopped."""
    site = ground.site
    [(revision,)] = site.sql("SELECT version_num FROM alembic_version")
    question = "UPDATE alembic_version SET version_num = %s RETURNING 1"
    work = Work(site, queries=4, references=12, assets=2)
    ground.wait_until_ready()
    with ground.shut():
        work.send()
        ground.wait_until_all_work(work)
        work.ask(question, "9999")
        ground.kill_child(work)  # the one in its place does not know the schema
    wait_until(lambda: all(worker.poll() is not None for worker in site.workers), PATIENCE / 3)
    assert all(worker.returncode > 0 for worker in site.workers)
    work.ask(question, revision)
    site.workers.clear()
    for _ in range(2):
        site.start_worker()
    work.wait()
    count = work.count()
    print(f"newer schema: {count}")
    assert (count.lost, count.doubled, count.quarantined) == (0, 0, 0)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler for a clock that can be wrong")
def test_clocks_that_are_wrong_and_jump_do_no_harm(ground: Ground) -> None:
    """Last, because the workers keep their clocks."""
    day = 86_400
    clocks = [Clock(ground.site.home, "early", -day), Clock(ground.site.home, "late", day)]
    ground.site.stop_workers()
    for clock in clocks:
        ground.site.start_worker(**clock.environment)
    told = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"],
        env=os.environ | clocks[1].environment,
        capture_output=True,
        check=True,
    )
    assert float(told.stdout) > time.time() + day / 2
    work = Work(ground.site, queries=4, references=12, assets=2)
    ground.wait_until_ready()
    with ground.shut():
        work.send()
        ground.wait_until_all_work(work)
        for clock, seconds in zip(clocks, (day, -day), strict=True):
            clock.jump(seconds)
        ground.kill_child(work)
    work.wait()
    count = work.count()
    print(f"clocks: {count}")
    assert (count.lost, count.doubled, count.quarantined) == (0, 0, 0)
