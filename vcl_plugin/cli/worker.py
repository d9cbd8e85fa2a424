"""`vcl worker`: a Celery worker, and the services it needs kept alive beside it.

In: which queues and how many processes. Out: work done until it is stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Annotated

import typer

from retrieval.database import check_schema, connect
from retrieval.errors import RetrievalError
from retrieval.services import ensure_services, wait_for_broker, wait_for_database
from retrieval.settings import Settings, load_settings
from vcl_plugin.cli.output import complain, stderr

QUEUES = "search,localize,ingest,maintenance"


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
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a worker until it is stopped (Ctrl-C, or SIGTERM: work in hand is finished first)."""
    settings = load_settings()
    endpoints = ensure_services(settings)
    wait_for_database(endpoints.database_url, settings.service_timeout)
    wait_for_broker(endpoints.broker_url, settings.service_timeout)
    check_schema(connect(endpoints.database_url))
    # A GPU process must not fork (CUDA does not survive it), hence the solo pool.
    pool = ["--pool", "solo"] if gpu else ["--pool", "prefork", "--concurrency", str(concurrency)]
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "celery", "--app", "retrieval.tasks", "worker"),
            *("--beat", "--queues", queues, "--loglevel", log_level),
            *("--hostname", f"vcl-{os.getpid()}@%h", "--without-gossip", "--without-mingle"),
            *pool,
        ],
        env=os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
    )
    sys.exit(_supervise(child, settings))


def _supervise(child: subprocess.Popen[bytes], settings: Settings) -> int:
    """Pass signals on, and start an embedded server again that died under us."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, lambda number, frame: None)  # the terminal signals both of us
    while True:
        try:
            return child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            try:
                ensure_services(settings)
            except RetrievalError as error:
                complain(error)
                stderr.print("the worker goes on and tries again")
                time.sleep(2)
