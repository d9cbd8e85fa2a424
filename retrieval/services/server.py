"""One server process, detached from whoever started it and known by the lock it holds.

In: a command and its place. Out: whether it runs, its process id, start and stop.

The server inherits an open, locked file and keeps it for life. The kernel drops the lock when the
last process of the server is gone, however it ended; so "is it running" has an exact answer that
no stale pid file, reused process id or reboot can spoil.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from retrieval.errors import ServiceUnavailable
from retrieval.services.place import Place, open_owned

LARGEST_LOG = 10_000_000

# Writes its own process id into the locked file (stdout), then becomes the server, which keeps
# that file as descriptor 3 and logs to the log file (stderr).
_BECOME_SERVER = 'echo $$; exec "$@" 3>&1 1>&2'


@dataclass(frozen=True)
class Server:
    """A server of a place; `stop_signal` is the one it takes as: finish writing and leave."""

    name: str
    place: Place
    log: Path
    stop_signal: signal.Signals = signal.SIGTERM

    @property
    def lock(self) -> Path:
        return self.place.folder / f"{self.name}.lock"

    def is_running(self) -> bool:
        try:
            lock = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two who ask at once do not take each other for the server.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def pid(self) -> int | None:
        """The process id, None when the server does not run (or has not yet come to itself)."""
        if not self.is_running():
            return None
        text = self.lock.read_text().strip()
        return int(text) if text else None

    def start(self, command: list[str]) -> int:
        """Launch and return at once, with the length of the log before the server's first word.

        The caller holds the home's lock and saw that the server does not run.
        """
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            self.log.replace(f"{self.log}.1")
        lock = open_owned(self.lock, os.O_RDWR | os.O_CREAT)
        log = open_owned(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits only for those who ask, a few microseconds
            os.ftruncate(lock, 0)
            log_length = os.fstat(log).st_size
            # The outer shell leaves at once, so the server is nobody's child and no zombie.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "sh", "/bin/sh", "-c", _BECOME_SERVER, "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=lock,
                stderr=log,
                start_new_session=True,
                check=True,
                **self.place.popen_arguments(),
            )
        finally:
            os.close(lock)
            os.close(log)
        return log_length

    def stop(self, timeout: float) -> bool:
        """Stop cleanly and wait; False when it was not running."""
        pid = self.pid()
        if pid is None:
            return False
        # It may have been killed a moment ago while its last children still hold the lock.
        with suppress(ProcessLookupError):
            os.kill(pid, self.stop_signal)
        deadline = time.monotonic() + timeout
        while self.is_running():
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"{self.name} (process {pid}) did not stop within {timeout:g} s; "
                    f"see {self.log}, then try again or end it with `kill -9 {pid}`: "
                    "what was committed is kept"
                )
            time.sleep(0.02)
        return True

    def last_words(self, since: int) -> str:
        """Why it died, as its log says it: the last fatal line written after byte `since`."""
        with self.log.open("rb") as file:
            file.seek(since)
            lines = file.read().decode(errors="replace").strip().splitlines()
        fatal = [line for line in lines if "FATAL" in line or "rror" in line]
        return (fatal or lines or ["it left no message"])[-1].strip()
