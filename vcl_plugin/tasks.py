"""The Celery edge of the plugin: `vcl_plugin.localize`, for this engine and any other.

In: JSON arguments from the `localize` queue. Out: calls into the worker.
docs/reference/tasks.md is its contract.
"""

from __future__ import annotations

import logging

from celery.signals import worker_process_init

from retrieval.process import process_engine
from retrieval.tasks import PATIENT, app, send
from retrieval.work.messages import LOCALIZE, localize_messages
from vcl_plugin.worker import LocalizeWorker

log = logging.getLogger(__name__)


@worker_process_init.connect
def load_models(**_: object) -> None:
    """After the fork, never before: a child that inherits torch's threads hangs."""
    process_engine().load()


@app.task(name=LOCALIZE, **PATIENT)
def localize(
    query_id: str,
    reference_ids: list[str],
    search_id: str | None = None,
    fingerprint: str | None = None,
) -> None:
    """Localize one query against many references.

    With a `search_id` the pairs are opened first if they do not exist; without one, only pairs
    that already wait are taken.
    """
    worker = LocalizeWorker(process_engine())
    reference_ids = list(dict.fromkeys(reference_ids))
    if search_id is not None:
        worker.open(search_id, query_id, reference_ids, fingerprint)
    groups = worker.engine.group_references(reference_ids)
    if search_id is not None and len(groups) > 1:
        # Too much for one: all workers share it.
        send(localize_messages(search_id, query_id, groups))
        return
    done = worker.localize(query_id, groups)
    # The search's id is put into every line of this task (retrieval/work/journal.py).
    log.info("localize query=%s references=%d done=%d", query_id, len(reference_ids), done)
