"""The Celery edge of the plugin: `vcl_plugin.localize` and `vcl_plugin.attach`, for any engine.

In: JSON arguments from the queues `localize` and `ingest`. Out: calls into the worker; references.
docs/reference/tasks.md is its contract.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from celery.signals import worker_process_init

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import Refused
from retrieval.process import process_engine
from retrieval.tasks import PATIENT, app, send
from retrieval.work import catalogue
from retrieval.work.messages import ATTACH, INGEST, LOCALIZE, Message, localize_messages
from vcl_plugin.claims import assets
from vcl_plugin.claims.turns import take_references
from vcl_plugin.worker import IllProcess, LocalizeWorker

log = logging.getLogger(__name__)


@worker_process_init.connect
def load_models(**_: object) -> None:
    """After the fork, never before: a child that inherits torch's threads hangs."""
    engine = process_engine()
    engine.load()
    with _ending_if_ill():
        _worker_of(engine).check_process()


@contextmanager
def _ending_if_ill() -> Iterator[None]:
    """A process that can compare nothing would set aside whatever it touches."""
    try:
        yield
    except IllProcess as illness:
        log.critical("this process ends itself, and another takes its place: %s", illness)
        sys.exit(1)


@lru_cache(maxsize=1)
def _worker_of(engine: RetrievalEngine) -> LocalizeWorker:
    return LocalizeWorker(engine)


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
    worker = _worker_of(process_engine())
    reference_ids = list(dict.fromkeys(reference_ids))
    if search_id is not None:
        worker.open(search_id, query_id, reference_ids, fingerprint)
    groups = worker.engine.group_references(reference_ids)
    if search_id is not None and len(groups) > 1:
        # Too much for one: all workers share it.
        send(localize_messages(search_id, query_id, groups))
        return
    with _ending_if_ill():
        done = worker.localize(query_id, groups)
    # The search's id is put into every line of this task (retrieval/work/journal.py).
    log.info("localize query=%s references=%d done=%d", query_id, len(reference_ids), done)


@app.task(name=ATTACH, **PATIENT)
def attach(video_id: str, owner: str, asset: str) -> None:
    """Let a registered video stand for an owner's asset, made if it is new.

    From then on what was found of it, and what will be, reaches claims. What is wrong stands in the
    video's row, where the sender looks.
    """
    engine = process_engine()
    try:
        with transaction(engine.database) as connection:
            if not catalogue.read_videos(connection, [video_id]):
                catalogue.note_unregistered(connection, [video_id])
                return
            take_references(connection, [video_id])  # before the asset, as everybody does
            assets.add_reference(connection, video_id, assets.add_asset(connection, owner, asset))
    except Refused as error:
        log.warning("attach video=%s refused: %s", video_id, error)
        with transaction(engine.database) as connection:
            catalogue.refuse_foreign(connection, video_id, error.code, str(error))
        return
    log.info("attach video=%s owner=%s asset=%s", video_id, owner, asset)
    # Described by this engine, it is searched against the other references, too.
    send([Message(INGEST, {"video_id": video_id})])
