"""Waiting for searches: many requests wait, one look at the database answers them all.

In: the id of a search and its state as the caller has it. Out: the state, once it is another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress

from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from retrieval.database import transaction
from retrieval.errors import RetrievalError
from retrieval.records import Search
from retrieval.work.searches import read_searches

log = logging.getLogger(__name__)

PAUSE = 0.25  # seconds between two looks


class Watch:
    """Whoever waits in this process; it looks only while somebody does."""

    def __init__(self, database: Engine) -> None:
        self.database = database
        self._wanted: Counter[str] = Counter()
        self._known: dict[str, Search] = {}
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def wait_for_change(self, search: Search, timeout: float) -> Search:
        """The search as it is when it differs from `search`, or after so many seconds."""
        deadline = asyncio.get_running_loop().time() + timeout
        self._wanted[search.search_id] += 1
        try:
            while True:
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    return search
                looked = self._begin()
                with suppress(TimeoutError):
                    await asyncio.wait_for(looked.wait(), left)
                found = self._known.get(search.search_id, search)
                if found != search:
                    return found
        finally:
            self._wanted[search.search_id] -= 1
            if not self._wanted[search.search_id]:
                del self._wanted[search.search_id]
                self._known.pop(search.search_id, None)

    def _begin(self) -> asyncio.Event:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        return self._looked

    async def _look(self) -> None:
        while self._wanted:
            try:
                found = await run_in_threadpool(self._read, list(self._wanted))
                self._known = {each.search_id: each for each in found}
            except RetrievalError as error:
                log.warning("waiting for the database: %s", error)
            done, self._looked = self._looked, asyncio.Event()
            done.set()
            await asyncio.sleep(PAUSE)

    def _read(self, search_ids: list[str]) -> list[Search]:
        with transaction(self.database) as connection:
            return read_searches(connection, search_ids)
