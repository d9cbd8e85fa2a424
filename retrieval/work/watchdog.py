"""Notices a worker that has stopped taking work though its process lives.

In: looks at the broker's queues and at the leases, every few seconds. Out: whether it stalled.

A consumer can fall silent for good after its broker went away and came back: the process runs,
answers signals, and takes no message. Nobody else notices, because nothing fails.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Engine

from retrieval.database import transaction
from retrieval.work import leases


class Look(NamedTuple):
    """What was seen at one moment."""

    heads: tuple[str | None, ...]  # of each queue served, the message to be taken next
    is_working: bool  # a process of this machine holds a lease


class Watchdog:
    """Judges one look after another.

    A worker has stalled when for `patience` seconds messages wait, the same ones are next, and no
    process of this machine works on anything. Another worker of this machine that works speaks
    for both: it takes the messages too.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.patience, self.clock = patience, clock
        self._usual_patience = patience
        self._last: Look | None = None
        self._since = clock()

    def has_stalled(self, look: Look) -> bool:
        now = self.clock()
        is_idle = not any(look.heads) or look.is_working
        if look.is_working:
            self.patience = self._usual_patience  # what was started anew works
        if is_idle or look != self._last:
            self._last, self._since = look, now
        return now - self._since >= self.patience

    def forgive(self) -> None:
        """The worker was started anew. It gets twice the time: loading models may be what lasts.

        As soon as it works, its time is the usual one again. A message that is gone proves nothing:
        a worker's parent fetches one ahead for each child, while the children still load.
        """
        self.patience *= 2
        self._last = None


def is_working(database: Engine) -> bool:
    """Whether a process of this machine holds a lease that has not run out."""
    with transaction(database) as connection:
        holders = leases.list_holders(connection)
    host = f"{socket.gethostname()}:"
    return any(each.startswith(host) for each in holders)
