"""The Celery edge of the plugin: `vcl_plugin.localize`, for this engine and any other.

In: JSON arguments from the `localize` queue. Out: calls into the worker.
docs/tasks.md is its contract.
"""

from __future__ import annotations

import logging

from celery.signals import worker_process_init

from retrieval.process import process_engine
from retrieval.tasks import PATIENT, app, send
from vcl_plugin.worker import LocalizeWorker

log = logging.getLogger(__name__)


@worker_process_init.connect
def load_models(**_: object) -> None:
    """After the fork, never before: a child that inherits torch's threads hangs."""
    process_engine().load()


@app.task(name="vcl_plugin.localize", **PATIENT)
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
    query_id = str(query_id)
    # A JSON number is a fair id; a lone string would otherwise be taken for a list of letters.
    wanted = [reference_ids] if isinstance(reference_ids, str) else map(str, reference_ids)
    reference_ids = list(dict.fromkeys(wanted))
    if search_id is not None:
        worker.open(str(search_id), query_id, reference_ids, fingerprint)
        messages = worker.engine.batches(str(search_id), query_id, reference_ids)
        if len(messages) > 1:
            send(messages)  # too much for one: all workers share it
            return
    done = worker.localize(query_id, reference_ids)
    # The search's id is put into every line of this task (retrieval/work/journal.py).
    log.info("localize query=%s references=%d done=%d", query_id, len(reference_ids), done)
