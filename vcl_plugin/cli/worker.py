"""`vcl worker`: a Celery worker, and beside it what keeps it and its services at work.

In: which queues and how many processes. Out: work done until it is stopped.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import FrameType
from typing import Annotated, Literal, TypeVar

import typer
from sqlalchemy.exc import SQLAlchemyError

from retrieval import tasks
from retrieval.database import check_schema, connect, transaction
from retrieval.errors import (
    Refused,
    RetrievalError,
    SchemaIncomplete,
    SchemaOutdated,
    ServiceUnavailable,
)
from retrieval.index.keeper import SnapshotKeeper
from retrieval.process import process_engine, process_services
from retrieval.services import ensure_services, keep_services, wait_for_broker, wait_for_database
from retrieval.settings import Settings, load_settings
from retrieval.work import journal
from retrieval.work.messages import Queue
from retrieval.work.presence import forget_worker, name_worker, note_worker
from retrieval.work.watchdog import Look, Watchdog, is_working
from vcl_plugin.claims.changes import settle_left
from vcl_plugin.webhooks.courier import running_courier

log = logging.getLogger(__name__)

# What people wait for is named first; every one of them is served.
QUEUES = ",".join((Queue.SEARCH, Queue.LOCALIZE, Queue.INGEST, Queue.MAINTENANCE))
FAILURES = 4  # of a worker in a row, before its supervisor gives up
PAUSE = 1.0  # seconds after the first of them, doubled after each
SOON = 60.0  # seconds; a worker that lived longer has worked, whatever it then failed of
SETTLING = 5.0  # seconds a sweep, for rules that a command began to settle and died
_T = TypeVar("_T")
_LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec another thread may hold the loader


def worker(
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, help="Worker processes; default: cores.")
    ] = os.cpu_count() or 1,
    queues: Annotated[
        str, typer.Option("--queues", "-Q", help="Comma-separated queues to serve.")
    ] = QUEUES,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="One process on one GPU: set VCL_DEVICE=cuda:N beside it."),
    ] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="What is told.")
    ] = "info",
) -> None:
    """Run a worker until it is stopped (Ctrl-C, or SIGTERM: work in hand is finished first)."""
    served = _read_queues(queues)
    settings = load_settings()
    keep_services(settings)
    endpoints = _patiently(lambda: process_services(settings), settings.service_timeout)
    wait_for_database(endpoints.database_url, settings.service_timeout)
    wait_for_broker(endpoints.broker_url, settings.service_timeout)
    database = connect(endpoints.database_url)
    _patiently(lambda: check_schema(database), settings.service_timeout)
    # A worker that cannot see the store would take work from those that can.
    _patiently(lambda: process_engine().store.check(), settings.service_timeout)
    journal.start(log_level.upper())
    # A GPU process must not fork (CUDA does not survive it), hence the solo pool.
    pool = ["--pool", "solo"] if gpu else ["--pool", "prefork", "--concurrency", str(concurrency)]
    command = [
        *(sys.executable, "-m", "celery", "--app", "retrieval.tasks", "worker"),
        *("--queues", ",".join(served), "--loglevel", log_level),
        *("--hostname", f"vcl-{os.getpid()}@%h", "--without-gossip", "--without-mingle"),
        *pool,
    ]
    supervisor = Supervisor(command, served, 1 if gpu else concurrency, settings)
    # A machine for one kind of work, a card perhaps, need not reach the world.
    sends = Queue.MAINTENANCE in served
    with running_courier(database, settings.webhook_private) if sends else nullcontext():
        code = supervisor.run()
    with suppress(RetrievalError), transaction(database) as connection:
        forget_worker(connection, name_worker())
    sys.exit(code)


def _read_queues(names: str) -> list[str]:
    found = [name.strip() for name in names.split(",")]
    unknown = [name for name in found if name not in set(Queue)]
    if unknown:
        raise Refused(f"there is no queue {', '.join(map(repr, unknown))}; there are {QUEUES}")
    return found


def _patiently(work: Callable[[], _T], seconds: float) -> _T:
    """What `work` gives. A service that falls between two questions is asked again: workers are
    started when something fell, and more may be falling."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except ServiceUnavailable as error:
            if time.monotonic() > deadline:
                raise
            log.warning("%s; asked again", tasks.first_line(error))
            time.sleep(0.5)


class Supervisor:
    """Keeps a Celery worker at work until it is told to stop, and does what must not depend on it.

    Sweeping for lost work is done here and not by a message: it is the net for the case that
    messages do not arrive.
    """

    def __init__(
        self, command: list[str], queues: list[str], processes: int, settings: Settings
    ) -> None:
        self.command, self.queues, self.settings = command, queues, settings
        self.processes = processes
        self.watchdog = Watchdog(settings.stall_seconds)
        self.next_sweep = 0.0
        self.keeper = SnapshotKeeper(
            [sys.executable, "-m", "vcl_plugin.cli", "index", "build", "--if-due"]
        )
        self.is_stopping = False
        self.outdated = 0  # the exit code, if the schema is another one by now
        self.failures = 0  # in a row, each soon after its start
        self.child = self._start()
        # The worker has a group of its own, so that all of it can be ended; so a Ctrl-C in the
        # terminal reaches us alone.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, self._pass_on)

    def run(self) -> int:
        """Until the worker ends; returns its exit code. One that was killed is started anew, and so
        is one that failed, unless it fails again and again: that is no outage."""
        while True:
            try:
                code = self.child.wait(timeout=min(2.0, self.settings.sweep_seconds))
            except subprocess.TimeoutExpired:
                self._look_after()
                continue
            if code == 0 or self.is_stopping or (code > 0 and self._is_hopeless()):
                self.keeper.stop()
                return code or self.outdated
            how = f"failed with code {code}" if code > 0 else f"was killed by signal {-code}"
            log.warning("the worker %s; it is started anew", how)
            self._restart()

    def _is_hopeless(self) -> bool:
        """Whether it failed too often; if not, a pause is made, longer each time."""
        if time.monotonic() - self.started > SOON:
            self.failures = 0
        self.failures += 1
        if self.failures > FAILURES:
            return True
        time.sleep(PAUSE * 2 ** (self.failures - 1))
        return self.is_stopping

    def _start(self) -> subprocess.Popen[bytes]:
        threads = os.environ.get("OMP_NUM_THREADS", "1")
        self.started = time.monotonic()
        return subprocess.Popen(
            self.command,
            env=os.environ | {"OMP_NUM_THREADS": threads},
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.is_stopping = True
        self.child.send_signal(number)

    def _look_after(self) -> None:
        """Services alive, lost work sent again, the worker taking work."""
        try:
            endpoints = ensure_services(self.settings)
            self._sweep_if_due(endpoints.database_url)
            look = Look(tasks.queue_heads(self.queues), is_working(connect(endpoints.database_url)))
        except (RetrievalError, SQLAlchemyError) as error:
            if isinstance(error, SchemaOutdated) and not isinstance(error, SchemaIncomplete):
                log.error("%s; this worker ends, and leaves its messages to others", error)
                self.outdated = 1
                self.is_stopping = True
                self.child.terminate()
                return
            # Whatever the database says: who looks after the others must not fall first.
            log.warning("%s; the worker goes on and tries again", tasks.first_line(error))
            time.sleep(2)
            return
        except tasks.BROKER_ERRORS:
            return  # the worker itself says that it has no broker, and waits for it
        if not self.is_stopping and self.watchdog.has_stalled(look):
            log.warning(
                "the worker took none of the waiting messages for %g s; it is started anew",
                self.watchdog.patience,
            )
            self.child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(timeout=10)
            self._restart()
            self.watchdog.forgive()

    def _sweep_if_due(self, database_url: str) -> None:
        if time.monotonic() >= self.next_sweep and not self.is_stopping:
            self.next_sweep = time.monotonic() + self.settings.sweep_seconds
            database = connect(database_url)
            check_schema(database)
            with transaction(database) as connection:
                note_worker(connection, name_worker(), self.queues, self.processes)
            tasks.sweep()
            settle_left(process_engine().database, seconds=SETTLING)
            self.keeper.look(process_engine().database)

    def _restart(self) -> None:
        """Its whole group ends first, for its processes may hold work they will never finish."""
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.child = self._start()


def _end_with_parent() -> None:
    """Run in the child: a supervisor killed outright takes its worker along, work in hand done."""
    set_death_signal = 1  # PR_SET_PDEATHSIG
    _LIBC.prctl(set_death_signal, signal.SIGTERM)
