"""The audit of accesses: who asked for what, when, and how it was answered.

In: a note of each request. Out: rows in `accesses`, some at a time, so that no request waits.
"""

from __future__ import annotations

import logging
from collections import deque
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, text
from starlette.types import Scope

from retrieval.database import transaction
from retrieval.errors import RetrievalError

log = logging.getLogger(__name__)

MOST_KEPT = 100_000  # notes that wait while the database is away
UNNOTED = ("/livez", "/readyz")
LETTERS = 500


class Audit:
    """Notes that wait to be written; `write` is called every second and at the end."""

    def __init__(self, database: Engine) -> None:
        self.database = database
        self._notes: deque[dict[str, Any]] = deque(maxlen=MOST_KEPT)

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        if scope["path"] in UNNOTED or scope["path"].startswith("/static/"):
            return
        viewer = scope.get("vcl.viewer")
        client = scope.get("client")
        self._notes.append(
            {
                "at": datetime.now(UTC),
                "viewer": None if viewer is None else viewer.name,
                "method": scope["method"][:20],
                # What PostgreSQL cannot keep must not lose the notes beside it.
                "path": ascii(scope["path"])[1:-1][:LETTERS],
                "status": status,
                "address": None if client is None else client[0],
                "milliseconds": seconds * 1000,
            }
        )

    def write(self) -> None:
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        if not notes:
            return
        try:
            with transaction(self.database) as connection:
                connection.execute(
                    text("""
                    INSERT INTO accesses (at, viewer, method, path, status, address, milliseconds)
                    SELECT * FROM unnest(CAST(:at AS timestamptz[]), CAST(:viewer AS text[]),
                        CAST(:method AS text[]), CAST(:path AS text[]), CAST(:status AS int[]),
                        CAST(:address AS text[]), CAST(:milliseconds AS float[]))"""),
                    {name: [each[name] for each in notes] for name in notes[0]},
                )
        except RetrievalError as error:
            log.warning("%d accesses wait to be written: %s", len(notes), error)
            self._notes.extendleft(reversed(notes))
