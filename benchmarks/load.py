"""Ten thousand pairs at once: memory, throughput at both ends, and a small search in between.

Run: python benchmarks/load.py [--searches 100] [--references 100]

Uploads and references are made-up descriptors (60 and 90 seconds); one reference in twenty holds a
copy from each upload, so claims are settled too. All searches are sent at once, then the clock
runs until the last pair is done. A small search of five references is sent when half is done, and
compared with the same search on the idle site: what it waits is what scans cost a person.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, text

from retrieval.database import connect, migrate, transaction
from retrieval.services import ensure_services, stop_services
from retrieval.settings import load_settings
from retrieval.store import Store
from retrieval.tasks import send
from retrieval.work import catalogue
from retrieval.work.messages import LOCALIZE, Message
from retrieval.work.searches import wait_for_search
from vcl_plugin.claims.assets import add_asset, add_reference

FINGERPRINT = "load-1"
SMALL = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--references", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        os.environ["VCL_HOME"] = f"{folder}/home"
        settings = load_settings()
        endpoints = ensure_services(settings)
        migrate(endpoints.database_url)
        database = connect(endpoints.database_url)
        worker = subprocess.Popen(
            [sys.executable, "-m", "vcl_plugin.cli", "worker", "-c", str(arguments.processes)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            fill(database, Store(settings.store_dir), arguments.searches, arguments.references)
            time_small(database, "warm", arguments.references)
            idle = time_small(database, "idle", arguments.references)
            report(database, worker.pid, arguments.searches, arguments.references, idle)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait()
            stop_services(settings)


def report(database: Engine, worker: int, searches: int, references: int, idle: float) -> None:
    """Send everything, watch it, and print what was seen."""
    pairs, names = searches * references, [f"reference {each}" for each in range(references)]
    before = resident(os.getpid())
    started = time.monotonic()
    for number in range(searches):
        ask(f"upload {number}", names)
    sent = time.monotonic() - started
    print(f"{pairs} pairs in {searches} searches, sent in {sent:.1f} s")
    print(f"memory of the sender    {before} MB before, {resident(os.getpid())} MB after")
    seen: list[tuple[int, int, float]] = []  # pairs done, MB and CPU seconds of the processes
    busy: float | None = None
    while not seen or seen[-1][0] < pairs:
        done, processes = count_done(database), descendants(worker)
        seen.append((done, sum(map(resident, processes)), sum(map(cpu_seconds, processes))))
        if busy is None and done >= pairs // 2:
            busy = time_small(database, "busy", references)
        time.sleep(0.5)
    part = max(1, pairs // 10)
    for name, low in (("first", 0), ("second", part), ("last", pairs - part)):
        share = [each for each in seen if low <= each[0] <= low + part]
        # Other programs take turns on the cores: what a pair costs says more than pairs a second.
        cost = (share[-1][2] - share[0][2]) / max(1, share[-1][0] - share[0][0])
        print(
            f"{name + ' ' + str(part) + ' pairs':24}{rate(database, low, part):.1f} pairs/s, "
            f"{1000 * cost:.1f} ms CPU a pair, {max(each[1] for each in share)} MB"
        )
    print(f"small search            {idle:.2f} s idle, {busy:.2f} s amid the scan")


def fill(database: Engine, store: Store, uploads: int, references: int) -> None:
    generator = np.random.default_rng(3)

    def noise(seconds: int) -> Any:
        rows = generator.standard_normal((seconds, 256)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    copied = [noise(90) for _ in range(references)]
    names = [*(f"upload {each}" for each in range(uploads)), *("warm", "idle", "busy")]
    with transaction(database) as connection:
        asset = add_asset(connection, "An owner", "A film")
        for number, name in enumerate(names):
            rows = noise(60)
            start = number % 45
            rows[10:25] = copied[0][start : start + 15]
            register(connection, store, name, rows)
        for number, rows in enumerate(copied):
            # One in twenty shares its seconds with the first, and so with every upload.
            shown = copied[0] if number % 20 == 0 else rows
            register(connection, store, f"reference {number}", shown)
            add_reference(connection, f"reference {number}", asset)


def register(connection: Any, store: Store, name: str, rows: Any) -> None:
    path = store.write(name, FINGERPRINT, rows)
    catalogue.register_foreign(connection, name, None, float(len(rows)))
    catalogue.record_descriptors(connection, name, FINGERPRINT, str(path), len(rows), 256)


def ask(query: str, references: list[str]) -> str:
    search = str(uuid.uuid4())
    arguments = {
        "query_id": query,
        "reference_ids": references,
        "search_id": search,
        "fingerprint": FINGERPRINT,
    }
    # One message that names many pairs: whoever takes it splits it. `send` would call it a scan.
    send([Message(LOCALIZE, arguments, priority=0)])
    return search


def time_small(database: Engine, query: str, references: int) -> float:
    started = time.monotonic()
    search = ask(query, [f"reference {each}" for each in range(min(SMALL, references))])
    while True:
        with transaction(database) as connection:
            known = connection.execute(
                text("SELECT 1 FROM searches WHERE id = :id"), {"id": search}
            ).first()
        if known:
            break
        time.sleep(0.02)
    wait_for_search(database, search)
    return time.monotonic() - started


def count_done(database: Engine) -> int:
    with transaction(database) as connection:
        return int(
            connection.execute(
                text(
                    "SELECT count(*) FROM pairs"
                    " WHERE status IN ('done', 'quarantined') AND starts_with(query_id, 'upload ')"
                )
            ).scalar_one()
        )


def rate(database: Engine, offset: int, count: int) -> float:
    """Pairs a second among `count` of them, in the order in which they were finished."""
    with transaction(database) as connection:
        seconds = connection.execute(
            text("""
            SELECT extract(epoch FROM max(finished_at) - min(finished_at)) FROM (
                SELECT finished_at FROM pairs WHERE starts_with(query_id, 'upload ')
                ORDER BY finished_at OFFSET :offset LIMIT :count) AS part"""),
            {"offset": offset, "count": count},
        ).scalar_one()
    return (count - 1) / max(float(seconds), 1e-9)


def resident(process: int) -> int:
    """Megabytes of memory a process holds; 0 when it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(lines[0].split()[1]) // 1024 if lines else 0


def cpu_seconds(process: int) -> float:
    """Time on a core that a process and its ended children have had; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def descendants(process: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *descendants(child)]
    return found


if __name__ == "__main__":
    main()
