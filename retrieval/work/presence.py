"""Which workers are there: each parent says so at every sweep, whether there is work or not.

In: a worker's name, queues and processes. Out: rows of `workers` that were seen lately.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

SILENT_SWEEPS = 4  # a worker that missed so many is taken for gone
LEAST_SECONDS = 30.0


def name_worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def note_worker(connection: Connection, name: str, queues: Sequence[str], processes: int) -> None:
    """Say that a worker is there; those that went silent long ago are forgotten."""
    connection.execute(
        text("""
        INSERT INTO workers (name, queues, processes) VALUES (:name, :queues, :processes)
        ON CONFLICT (name) DO UPDATE SET seen_at = now(), queues = excluded.queues,
               processes = excluded.processes"""),
        {"name": name, "queues": list(queues), "processes": processes},
    )
    connection.execute(text("DELETE FROM workers WHERE seen_at < now() - interval '1 day'"))


def forget_worker(connection: Connection, name: str) -> None:
    connection.execute(text("DELETE FROM workers WHERE name = :name"), {"name": name})


def list_workers(connection: Connection, sweep_seconds: float) -> list[dict[str, Any]]:
    """The workers that were seen lately, and for how many seconds each has been silent."""
    rows = connection.execute(
        text("""
        SELECT name, queues, processes, started_at,
               extract(epoch FROM now() - seen_at)::float AS silent_seconds
        FROM workers WHERE seen_at > now() - make_interval(secs => :seconds) ORDER BY name"""),
        {"seconds": max(LEAST_SECONDS, SILENT_SWEEPS * sweep_seconds)},
    )
    return [dict(row) for row in rows.mappings()]
