"""Messages: which tasks there are, the queue each waits in, and how urgent it is.

In: ids of videos, searches and references. Out: `Message`s for somebody to send.
The names are a contract with other engines (docs/reference/tasks.md); celeryconfig.py reads its
queues and routes here. Knows no Celery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

INGEST = "retrieval.ingest"
REGISTER = "retrieval.register"
SEARCH = "retrieval.search"
RESCAN = "retrieval.rescan"
LOCALIZE = "vcl_plugin.localize"
ATTACH = "vcl_plugin.attach"
SWEEP = "retrieval.sweep"

# How urgent a message is, as Celery and Redis count: 0 is taken first.
URGENT, BULK = 0, 6
# A search of more pairs is a scan of a catalogue: nobody sits before it and waits.
URGENT_PAIRS = 64
# References of one message: small enough that two workers share a search, large enough that a
# query is read once for many.
BATCH_PAIRS = 8


class Queue(StrEnum):
    """Every queue, in the order of a video's way through them."""

    INGEST = "ingest"
    SEARCH = "search"
    LOCALIZE = "localize"
    MAINTENANCE = "maintenance"


class Priority(StrEnum):
    """How urgent a search is, in the words of whoever asks for it."""

    URGENT = "urgent"
    BULK = "bulk"  # a catalogue: it waits for people who wait

    @property
    def level(self) -> int:
        return BULK if self is Priority.BULK else URGENT


@dataclass(frozen=True)
class Route:
    """Where a task waits, and how urgent it is unless its sender says otherwise."""

    queue: Queue
    priority: int | None = None  # None: that of the task which sends it


ROUTES = {
    # A catalogue that comes in, and what it sets off, waits for people who wait.
    INGEST: Route(Queue.INGEST, BULK),
    REGISTER: Route(Queue.INGEST),
    SEARCH: Route(Queue.SEARCH),
    RESCAN: Route(Queue.SEARCH, BULK),
    LOCALIZE: Route(Queue.LOCALIZE),
    ATTACH: Route(Queue.INGEST),
    SWEEP: Route(Queue.MAINTENANCE),
}


@dataclass(frozen=True)
class Message:
    """A task for someone to run: its name and JSON arguments."""

    task: str
    arguments: dict[str, Any] = field(default_factory=dict)
    priority: int | None = None  # None: that of its route, or of the task which sends it


def localize_messages(
    search_id: str, query_id: str, groups: Sequence[Sequence[str]]
) -> list[Message]:
    """A message for each group of references, so that several workers share a search."""
    return [
        Message(
            LOCALIZE,
            {"query_id": query_id, "reference_ids": list(group), "search_id": search_id},
        )
        for group in groups
    ]


def group_references(
    reference_ids: Sequence[str], frames: Mapping[str, int], most_frames: int
) -> list[list[str]]:
    """The references in groups that fit one batch, bounded in number and in frames.

    >>> group_references(["a", "b", "c"], {"a": 60, "b": 30, "c": 20}, most_frames=100)
    [['a', 'b'], ['c']]
    """
    groups: list[list[str]] = []
    total = 0
    for reference_id in reference_ids:
        size = frames.get(reference_id, 0)
        is_full = groups and len(groups[-1]) >= BATCH_PAIRS
        if not groups or is_full or total + size > most_frames:
            groups.append([])
            total = 0
        groups[-1].append(reference_id)
        total += size
    return groups
