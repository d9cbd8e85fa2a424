"""A site for the index's tests: videos whose vectors follow from their names, and processes.

Run as a program it does one thing and may be killed at a chosen instant:
`index_site.py crash URL HOME ACTION`, `index_site.py write URL HOME`, `... read URL HOME`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, event, text

from retrieval import store
from retrieval.database import connect, transaction
from retrieval.index import codes, replica, snapshots
from retrieval.index.replica import Replica
from retrieval.plugins import Pooled
from retrieval.settings import Settings
from retrieval.store import Store
from retrieval.work import catalogue
from retrieval.work.changes import REFERENCES

KIND = "test-kind"
FRAMES = 24
DEADLINE = 120.0


class Fours:
    """The mean of every four seconds."""

    name = fingerprint = "fours"

    def pool(self, descriptors: np.ndarray, low_information: Any = None) -> Pooled:
        rows = descriptors[: len(descriptors) // 4 * 4].reshape(-1, 4, 256).mean(axis=1)
        starts = np.arange(len(rows), dtype=np.float32) * 4
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return Pooled(rows, np.stack([starts, starts + 4], axis=1))


def open_replica(database: Engine, home: Path, **settings: Any) -> Replica:
    known = Settings(home=home, **settings)
    return Replica(REFERENCES, KIND, Fours(), database, Store(known.store_dir), known)


def rows_of(name: str, frames: int = FRAMES) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    rows = rng.standard_normal((frames, 256))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def plant(site: Replica, name: str, frames: int = FRAMES) -> None:
    """A described reference, as the ingest leaves it."""
    path = site.store.write(name, KIND, rows_of(name, frames))
    with transaction(site.database) as connection:
        catalogue.register_foreign(connection, name, None, float(frames))
        catalogue.record_descriptors(connection, name, KIND, str(path), frames, 256)
        catalogue.make_reference(connection, name)


def withdraw(site: Replica, name: str) -> None:
    with transaction(site.database) as connection:
        catalogue.unmake_reference(connection, name)


def alive_at(site: Replica, seq: int | None = None) -> set[str]:
    """The references there were when the log had that many lines, by the log itself."""
    with transaction(site.database) as connection:
        rows = connection.execute(
            text("""
            SELECT DISTINCT ON (video_id) video_id, action FROM index_changes
            WHERE collection = 'references' AND seq <= coalesce(:seq, seq)
            ORDER BY video_id, seq DESC"""),
            {"seq": seq},
        )
        return {row.video_id for row in rows if row.action == "add"}


def check_answers(site: Replica, alive: set[str], names: list[str]) -> None:
    """Each name is found by its own footage if it lives, and not at all if it does not."""
    for name in names:
        stored = site.store.read(site.store.path_of(name, KIND))
        pooled = site.pooler.pool(stored.descriptors)
        hits = site.index.search(pooled.vectors[1:2], 3)
        found = [hits.videos[number] for number in hits.numbers[0] if number >= 0]
        if name in alive:
            assert name in site.index, f"{name} is missing"
            assert found[0] == name, f"{found} instead of {name}"
            assert abs(hits.scores[0, 0] - 1) < 2e-3
            assert hits.spans[0, 0].tolist() == pooled.spans[1].tolist()
        else:
            assert name not in site.index, f"{name} is still there"
            assert name not in found, f"{name} is still found"


def kill_at(instant: int) -> None:
    """Let this process be killed before its n-th step: statement, commit, write, sync, rename."""
    steps = 0

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **named: Any) -> Any:
            step()
            return call(*arguments, **named)

        return stepping

    def step(*ignored: Any, **named: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == instant:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", step)
    event.listen(Engine, "commit", step)
    os.fsync = before(os.fsync)
    os.replace = before(os.replace)
    np.save = before(np.save)
    codes.train_codes = before(codes.train_codes)
    codes.run_self_test = before(codes.run_self_test)
    snapshots.write_facts = before(snapshots.write_facts)
    store.write_atomically = before(store.write_atomically)


def fork(work: Callable[[], None]) -> int:
    """Run that in a child; returns what `waitpid` says. Nothing here has used FAISS before."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"failed: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1]


def crash(url: str, home: Path, action: str) -> None:
    """Do it over and over, killed one instant later each time, until it gets through.

    After each kill a new process must find everything that was committed.
    """
    # Few enough for a flat index of `add`; trained codes for the others.
    films, frames = (4, FRAMES) if action == "add" else (11, 400)

    def prepare() -> None:
        site = open_replica(connect(url), home)
        for number in range(films):
            plant(site, f"film-{number}", frames)

    def act(instant: int) -> None:
        site = open_replica(connect(url), home, index_fast_from=1000)
        replica.FEWEST_CHANGES = 1
        if action == "save":
            plant(site, f"new-{instant}")  # so that a snapshot is due, whatever the last one did
        site.refresh()
        kill_at(instant)
        if action == "add":
            plant(site, f"new-{instant}")
            site.refresh()
        elif action == "save":
            assert site.snapshot_if_due()
        else:
            site.build()

    def verify() -> None:
        site = open_replica(connect(url), home)
        site.refresh()
        alive = alive_at(site)
        assert len(site.index) == len(alive) >= films
        check_answers(site, alive, sorted(alive))

    assert fork(prepare) == 0
    for instant in range(1, 200):
        status = fork(lambda at=instant: act(at))  # type: ignore[misc]
        assert os.WIFSIGNALED(status) or status == 0, f"{action} failed at {instant}"
        assert fork(verify) == 0, f"lost after a kill at instant {instant} of {action}"
        if status == 0:
            break
    folders = [each for each in (home / "index").glob("*") if each.is_dir()]
    assert len(folders) == (0 if action == "add" else 1), f"left over: {folders}"
    print(f"{action}: {instant - 1} instants")


def crash_at_random(url: str, home: Path) -> None:
    """Kill a process that adds, saves and builds without end, wherever it happens to be."""

    def work() -> None:
        replica.FEWEST_CHANGES = 1
        site = open_replica(connect(url), home, index_fast_from=1000)
        number = len(alive_at(site))
        while True:
            plant(site, f"film-{number}", 400)
            number += 1
            site.snapshot_if_due()
            site.build()

    def verify() -> None:
        site = open_replica(connect(url), home)
        site.refresh()
        alive = alive_at(site)
        assert len(site.index) == len(alive)
        check_answers(site, alive, sorted(alive))

    chance = random.Random(3)
    for _ in range(8):
        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.1, 1.5))
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "it ended before it was killed"
        assert fork(verify) == 0
    print("random: 8 kills")


def write(url: str, home: Path) -> None:
    """Add and remove references and make snapshots, until a file called `stop` appears."""
    replica.FEWEST_CHANGES = 1
    site = open_replica(connect(url), home)
    chance = random.Random(1)
    step = 0
    while not (home / "stop").exists():
        alive = sorted(alive_at(site))
        name = f"film-{chance.randrange(40)}"
        if name in alive and len(alive) > 5:
            withdraw(site, name)
        elif name not in alive:
            plant(site, name)
        step += 1
        if step % 5 == 0:
            site.snapshot_if_due()


def read(url: str, home: Path) -> None:
    """Search while another process writes, until three snapshots were seen; every answer right."""
    site = open_replica(connect(url), home)
    chance = random.Random(os.getpid())
    seen: set[Path | None] = set()
    rounds, started = 0, time.monotonic()
    while len(seen) < 3 or rounds < 15:
        assert time.monotonic() - started < DEADLINE, f"{rounds} rounds, snapshots {seen}"
        with transaction(site.database) as connection:
            newest = connection.execute(text("SELECT max(seq) FROM index_changes")).scalar_one()
        site.refresh()
        position = site.index.position
        alive = alive_at(site, position.seq)
        known = alive_at(site, newest) | alive
        # Both collections count in `newest`, and the uploads' line of a change comes second.
        assert position.seq >= newest - 1, "the index is older than the question"
        assert len(site.index) == len(alive)
        everybody = [
            f"film-{number}"
            for number in range(40)
            if site.store.has(site.store.path_of(f"film-{number}", KIND))
        ]
        assert known
        check_answers(site, alive, chance.sample(everybody, min(6, len(everybody))))
        seen.add(site.index.snapshot)  # type: ignore[attr-defined]
        rounds += 1
    print(f"{rounds} rounds, {len(seen)} snapshots")


if __name__ == "__main__":
    if sys.argv[1] == "crash" and sys.argv[4] == "random":
        crash_at_random(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1] == "crash":
        crash(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    elif sys.argv[1] == "write":
        write(sys.argv[2], Path(sys.argv[3]))
    else:
        read(sys.argv[2], Path(sys.argv[3]))
