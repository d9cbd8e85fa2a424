"""Waiting for searches, with one bar for all of them.

In: ids of searches. Out: their states at the end, in the order of the ids.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from retrieval.database import transaction
from retrieval.errors import Refused, ServiceUnavailable
from retrieval.records import Search, SearchStatus
from retrieval.work.searches import read_searches, wait_for_search
from vcl_plugin.cli.output import progress
from vcl_plugin.cli.session import Site, WorkerHint

PAUSE = 0.2


def wait_for_searches(site: Site, ids: Sequence[str], timeout: float | None) -> list[Search]:
    """Until all of them are at their end. A single one shows its pairs, several show searches."""
    if len(ids) == 1:
        return [_wait_for_one(site, ids[0], timeout)]
    started = answered = time.monotonic()
    hint = WorkerHint()
    with progress() as bar:
        task = bar.add_task("searching", total=len(ids))
        while True:
            try:
                with transaction(site.database) as connection:
                    known = {each.search_id: each for each in read_searches(connection, ids)}
                answered = time.monotonic()
            except ServiceUnavailable:
                if time.monotonic() - answered > site.settings.service_timeout:
                    raise
                time.sleep(1)
                continue
            states = [known[each] for each in ids]
            left = [each for each in states if not each.status.is_final]
            doing = f"{left[0].query}: {left[0].status}" if left else "searched"
            bar.update(task, completed=len(ids) - len(left), description=doing)
            hint.watch(any(each.status != SearchStatus.WAITING for each in states))
            if not left:
                return states
            if timeout is not None and time.monotonic() - started > timeout:
                raise Refused(
                    f"{len(left)} of {len(ids)} searches are not at their end after {timeout:g} "
                    "seconds; is a worker running? start one with `vcl worker`",
                    code="timeout",
                )
            time.sleep(PAUSE)


def _wait_for_one(site: Site, search_id: str, timeout: float | None) -> Search:
    hint = WorkerHint()
    with progress() as bar:
        task = bar.add_task("searching", total=1)

        def show(state: Search) -> None:
            total = state.pairs_total or 1
            bar.update(
                task,
                description=f"{state.query}: {state.status}",
                total=total,
                completed=total - state.pairs_left if state.pairs_total else 0,
            )
            hint.watch(state.status != SearchStatus.WAITING)

        patience = site.settings.service_timeout
        return wait_for_search(site.database, search_id, timeout, show, outage=patience)
