"""Keeps the snapshots of the index young: starts a process that makes one when much has changed.

In: the log of changes, and a command (`vcl index build --if-due`). Out: a process beside us.
Called by the supervisor of `vcl worker` after every sweep; no search ever waits for a snapshot.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Sequence

from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.replica import FEWEST_CHANGES

log = logging.getLogger(__name__)

POLITE = 10  # added to its niceness: workers come first


class SnapshotKeeper:
    """Asks for a snapshot each time the log has grown by so many changes that one may be due."""

    def __init__(self, command: Sequence[str], changes: int = FEWEST_CHANGES) -> None:
        self.command = list(command)
        self.changes = changes
        self.child: subprocess.Popen[bytes] | None = None
        self._asked_at = 0

    def look(self, database: Engine) -> None:
        """Start the command if it is time and it does not run."""
        if self.child is not None and self.child.poll() is None:
            return
        if self.child is not None and self.child.returncode:
            log.warning("no snapshot of the index was made: code %d", self.child.returncode)
        self.child = None
        with transaction(database) as connection:
            last = connection.execute(text("SELECT max(seq) FROM index_changes")).scalar() or 0
        if last < self._asked_at:
            self._asked_at = 0  # another database, or one restored from a backup
        if last - self._asked_at >= self.changes:
            self._asked_at = last
            self.child = subprocess.Popen(
                self.command,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
                preexec_fn=lambda: os.nice(POLITE),
            )

    def stop(self) -> None:
        """End it in the middle of its work; the old snapshot stays the current one."""
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()
            self.child.wait()
