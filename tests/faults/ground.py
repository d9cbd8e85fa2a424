"""The ground on which faults are made: a real site, its processes, and ways to hurt them.

In: a site with several workers. Out: faults by name, and how long it took to recover from one.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.end_to_end.conftest import Site, descendants, open_site, wait_until
from tests.faults.localizer import ENTRY_POINT, GATE, PACE, READY, STICKY
from tests.faults.work import STORE, Work

ROOT = Path(__file__).parents[2]
CHILDREN = 2  # of a worker
AWAY_SECONDS = 8.0  # more than two leases of three seconds


class Ground:
    """A site under fire. While its gate is shut, pairs are begun and none is finished."""

    def __init__(self, site: Site, generator: random.Random) -> None:
        self.site, self.random = site, generator
        self.gate = Path(site.environment[GATE])
        self.faults: dict[str, Callable[[Work], None]] = {
            "a child killed": self.kill_child,
            "a worker killed": self.kill_worker,
            "a worker, its parent and its children killed": self.kill_all_of_a_worker,
            "the broker killed": self.kill_broker,
            "the broker killed and its files lost": self.lose_broker,
            "PostgreSQL killed": self.kill_postgres,
            "a child stopped": self.stop_child,
            "a process that fails at everything": self.lose_device,
            "the store unmounted": self.unmount_store,
            "a lease lost": self.lose_lease,
            "another version beside, or gone again": self.change_versions,
        }
        self.stopped: list[int] = []
        self.mounting: threading.Thread | None = None
        self.hidden: list[Path] = []  # written under the place where the store is mounted
        self.newer: subprocess.Popen[bytes] | None = None

    @contextmanager
    def shut(self) -> Iterator[None]:
        self.gate.touch()
        try:
            yield
        finally:
            self.gate.unlink()

    def strike(self, work: Work, *faults: str) -> float:
        """Make the faults while pairs are in work; the seconds until all is well again.

        All is well when no pair is in the hands that had it any more, for it is finished or free,
        and one that waited was finished. What a free pair then waits is the queue's doing.
        """
        self.wait_until_ready()
        with self.shut():
            work.send()
            held = self.wait_until_all_work(work)
            for fault in faults:
                self.faults[fault](work)
            waiting = work.unfinished() - {pair for pair, _ in held}
        started = time.monotonic()
        wait_until(lambda: not held & set(work.running()))
        wait_until(lambda: not waiting or waiting - work.unfinished())
        return time.monotonic() - started

    def wait_until_ready(self) -> None:
        """Until every process has loaded, so that none is held at the gate while others start."""
        processes = CHILDREN * len(self.site.workers)
        wait_until(lambda: sum(map(_is_alive, self._loaded())) >= processes)

    def _loaded(self) -> set[int]:
        return {int(each.name) for each in (self.gate.parent / "ready").iterdir()}

    def wait_until_all_work(self, work: Work) -> set[tuple[int, str]]:
        """Until every process has pairs in work; the pairs, each with its holder."""
        processes = CHILDREN * len(self.site.workers)
        wait_until(lambda: len({holder for _, holder in work.running()}) == processes)
        return set(work.running())

    def kill_child(self, work: Work) -> None:
        """A process in the middle of a pair, as the kernel does when memory runs out."""
        _signal(self._holder(work), signal.SIGKILL)

    def kill_worker(self, work: Work) -> None:
        """Celery's own process; its parent is there to start it anew."""
        worker = self.random.choice(self.site.workers)
        _signal(wait_until(lambda: descendants(worker.pid))[0], signal.SIGKILL)

    def kill_all_of_a_worker(self, work: Work) -> None:
        """As when its machine dies; another is started in its place."""
        self._kill(self.random.choice(self.site.workers))
        self.site.start_worker()

    def _kill(self, worker: subprocess.Popen[bytes]) -> None:
        for process in (worker.pid, *descendants(worker.pid)):
            _signal(process, signal.SIGKILL)
        worker.wait()
        self.site.workers.remove(worker)

    def kill_broker(self, work: Work) -> None:
        self.site.broker.kill()
        self.site.broker.start()

    def lose_broker(self, work: Work) -> None:
        """A message that no worker had taken is gone with it, and its sender sends it again."""
        self.site.broker.kill(forgetting=True)
        self.site.broker.start()
        work.send_unopened()

    def kill_postgres(self, work: Work) -> None:
        """The workers' parents have to notice and start it again."""
        [(folder,)] = work.ask("SHOW data_directory")
        first_line = (Path(folder) / "postmaster.pid").read_text().splitlines()[0]
        _signal(int(first_line), signal.SIGKILL)

    def stop_child(self, work: Work) -> None:
        """A process that hangs as a whole: not even its heartbeat goes on."""
        self.stopped.append(self._holder(work))
        _signal(self.stopped[-1], signal.SIGSTOP)

    def lose_device(self, work: Work) -> None:
        """From now on the process fails at every pair, until it ends."""
        Path(self.site.environment[STICKY]).write_text(str(self._holder(work)))

    def unmount_store(self, work: Work) -> None:
        """For a while there is nothing but an empty folder where the disk was mounted."""
        if self.mounting is not None and self.mounting.is_alive():
            return
        store = self.site.home / STORE
        store.rename(store.with_suffix(".away"))
        store.mkdir()
        self.mounting = threading.Timer(AWAY_SECONDS, self._mount_store)
        self.mounting.start()

    def _mount_store(self) -> None:
        store = self.site.home / STORE
        hidden = [path for path in store.rglob("*") if path.is_file()]
        store.rename(store.with_suffix(f".{time.monotonic_ns()}"))
        store.with_suffix(".away").rename(store)
        self.hidden += hidden

    def lose_lease(self, work: Work) -> None:
        """A holder goes on with pairs that others may take at once."""
        holder = self.random.choice(sorted({holder for _, holder in wait_until(work.running)}))
        work.ask(
            "UPDATE pairs SET status = 'waiting', leased_by = NULL, lease_until = NULL,"
            " sent_at = NULL WHERE leased_by = %s AND status = 'running' RETURNING id",
            holder,
        )

    def change_versions(self, work: Work) -> None:
        """A worker of the next version starts, or, if there is one, dies with what it holds."""
        if self.newer is not None and self.newer in self.site.workers:
            self._kill(self.newer)
            return
        newer = self.newer = self.site.start_worker(VCL_LOCALIZER="newer")
        # One that finds no store ends at once.
        wait_until(lambda: newer.poll() is not None or self._loaded() & set(descendants(newer.pid)))

    def tend(self) -> None:
        """Start workers anew that ended by themselves, as a service manager does."""
        for worker in [each for each in self.site.workers if each.poll() is not None]:
            self.site.workers.remove(worker)
            if worker is not self.newer:
                self.site.start_worker()

    def settle(self) -> None:
        """One version, the store where it belongs, and nobody asleep."""
        self.wake_stopped()
        if self.mounting is not None:
            self.mounting.join()
        if self.newer is not None and self.newer in self.site.workers:
            self.site.stop(self.newer)
        assert not self.hidden, f"written where the store should be mounted: {self.hidden}"

    @contextmanager
    def full_store(self) -> Iterator[None]:
        """No process of a worker can write a file while the block runs, as on a full disk; nor can
        those that it starts meanwhile."""
        self.wait_until_ready()
        self._limit_files(256)
        try:
            yield
        finally:
            self._limit_files(resource.RLIM_INFINITY)

    def _limit_files(self, size: int) -> None:
        for process in [each for worker in self.site.workers for each in descendants(worker.pid)]:
            with suppress(ProcessLookupError):
                resource.prlimit(process, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def wake_stopped(self) -> None:
        """They go on where they stood, with results that nobody waits for any more."""
        for process in self.stopped:
            _signal(process, signal.SIGCONT)
        self.stopped.clear()

    def _holder(self, work: Work) -> int:
        holders = {holder for _, holder in wait_until(work.running)}
        return int(self.random.choice(sorted(holders)).split(":")[1])


def _signal(process: int, number: signal.Signals) -> None:
    """What an earlier fault has ended meanwhile cannot be hurt again."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class Clock:
    """A wall clock for workers, wrong by as much as the test wants."""

    def __init__(self, folder: Path, name: str, seconds: int) -> None:
        self.offset = folder / f"{name}.offset"
        self.jump(seconds)
        library = folder / "clock.so"
        if not library.exists():
            source = Path(__file__).parent / "clock.c"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        self.environment = {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(self.offset)}

    def jump(self, seconds: int) -> None:
        """Let it be wrong by that from now on, for processes that run too."""
        self.offset.touch()
        with self.offset.open("r+b") as file:
            file.write(struct.pack("l", seconds))


@contextmanager
def open_ground(
    seed: int = 1, workers: int = 2, pace: float = 0.0, **settings: str
) -> Iterator[Ground]:
    """A site whose workers load the localizer with weak spots, found like anybody's plugin."""
    with open_site(workers=0, **settings) as site:
        plugin = site.home / "plugin" / "marked-1.dist-info"
        plugin.mkdir(parents=True)
        (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: marked\nVersion: 1\n")
        (plugin / "entry_points.txt").write_text(ENTRY_POINT)
        (site.home / "ready").mkdir()
        site.environment |= {
            "PYTHONPATH": f"{plugin.parent}:{ROOT}",
            "VCL_LOCALIZER": "marked",
            GATE: str(site.home / "gate"),
            READY: str(site.home / "ready"),
            STICKY: str(site.home / "sticky"),
            PACE: str(pace),
        }
        for _ in range(workers):
            site.start_worker()
        yield Ground(site, random.Random(seed))
