"""Keeps the snapshots of the index young: starts a process that makes one when much has changed.

In: the log of changes, and a command (`vcl index build --if-due`). Out: a process beside us.
No search ever waits for a snapshot.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Sequence

from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.index.replica import FEWEST_CHANGES

log = logging.getLogger(__name__)

POLITE = 10  # added to its niceness: workers come first
PAUSE = 300  # seconds after a failure


class SnapshotKeeper:
    """Asks for a snapshot each time the log has grown by so many changes that one may be due.

    A command that fails is tried again after a pause: the changes are still in no snapshot.
    """

    def __init__(
        self,
        command: Sequence[str],
        changes: int = FEWEST_CHANGES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.command = list(command)
        self.changes = changes
        self.clock = clock
        self.child: subprocess.Popen[bytes] | None = None
        self._asking_at = 0  # the end of the log when the command was started
        self._asked_at = 0  # the same, of the last that succeeded
        self._not_before = clock()

    def look(self, database: Engine) -> None:
        """Start the command if it is time and it does not run."""
        if self.child is not None and self.child.poll() is None:
            return
        if self.child is not None:
            self._note_end(self.child.returncode)
            self.child = None
        with transaction(database) as connection:
            last = connection.execute(text("SELECT max(seq) FROM index_changes")).scalar() or 0
        if last < self._asked_at:
            self._asked_at = 0  # another database, or one restored from a backup
        if last - self._asked_at >= self.changes and self.clock() >= self._not_before:
            self._asking_at = last
            self.child = subprocess.Popen(
                self.command,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
                preexec_fn=lambda: os.nice(POLITE),
            )

    def _note_end(self, code: int) -> None:
        if code:
            log.warning(
                "no snapshot of the index was made: code %d; tried again in %d s", code, PAUSE
            )
            self._not_before = self.clock() + PAUSE
        else:
            self._asked_at = self._asking_at

    def stop(self) -> None:
        """End it in the middle of its work; the old snapshot stays the current one."""
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()
            self.child.wait()
