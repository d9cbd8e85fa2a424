"""The Celery edge of the engine: its app, its tasks, and how work is sent.

In: JSON arguments from a queue. Out: calls into the engine; messages sent on.
Run by `vcl worker`; called by programs through `enqueue_search` and by foreign engines by name
(docs/reference/tasks.md). The truth is in PostgreSQL: a message lost or sent twice changes nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from celery import Celery, Task
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import (
    FingerprintMismatch,
    NotFound,
    Refused,
    RetrievalError,
    SchemaOutdated,
    ServiceUnavailable,
)
from retrieval.process import process_engine
from retrieval.records import Upload, VideoStatus
from retrieval.store import Store, StoredDescriptors
from retrieval.work import catalogue, deliveries, searches
from retrieval.work.arguments import read_arguments
from retrieval.work.messages import (
    BULK,
    INGEST,
    LOCALIZE,
    REGISTER,
    RESCAN,
    SEARCH,
    SWEEP,
    URGENT_PAIRS,
    Message,
    Priority,
)
from retrieval.work.sweeper import mark_unsent
from retrieval.work.sweeper import sweep as sweep_lost_work
from retrieval.work.uploads import UNKNOWN, note_upload, read_upload

log = logging.getLogger(__name__)


class CheckedTask(Task):
    """A task whose arguments are what its hints say; a message with others ends in a sentence."""

    abstract = True
    tell: Callable[[Mapping[str, Any], Refused], None] | None = None  # the sender, where one looks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            arguments = read_arguments(self.run, args, kwargs)
        except Refused as error:
            log.warning("%s refused: %s", self.name, error)
            if self.tell is not None:
                named = dict(zip(inspect.signature(self.run).parameters, args, strict=False))
                self.tell(named | kwargs, error)
            return None
        return self.run(**arguments)


app = Celery("vcl", task_cls=CheckedTask)
app.config_from_object("celeryconfig")

# A database that is away comes back: the message waits in the broker and tries again. One whose
# schema this version does not know is for a worker of another version; this one ends soon.
PATIENT: dict[str, Any] = {
    "autoretry_for": (ServiceUnavailable, SchemaOutdated),
    "max_retries": None,
    "retry_backoff": 1,
    "retry_backoff_max": 30,
    "throws": (RetrievalError,),  # expected: a line in the log, not a traceback
}
BROKER_ERRORS = (BrokerError, RedisError, OSError)


def send(messages: Iterable[Message]) -> None:
    """Hand messages to the broker. What it does not take stays a row that waits, to be swept up.

    A message without a priority is as urgent as the task that sends it, unless it is part of a
    large search: then it waits behind the small ones.
    """
    pending = list(messages)
    pairs = sum(len(each.arguments.get("reference_ids", ())) for each in pending)
    usual: int | None = BULK if pairs > URGENT_PAIRS else None
    try:
        while pending:
            message = pending[0]
            priority = usual if message.priority is None else message.priority
            options = {} if priority is None else {"priority": priority}
            app.send_task(message.task, kwargs=message.arguments, **options)
            del pending[0]
    except BROKER_ERRORS as error:
        log.warning(
            "the broker does not answer (%s); the work is written down and will be done when it "
            "is back",
            error,
        )
        unwritten = [
            each for each in pending if each.task == RESCAN
        ]  # if the database is away, too
        with suppress(ServiceUnavailable), transaction(process_engine().database) as connection:
            unwritten = mark_unsent(connection, pending)
        if unwritten:
            # A task that sends one is tried again as a whole, and sends it then.
            names = ", ".join(f"{each.task} {each.arguments}" for each in unwritten)
            raise ServiceUnavailable(
                f"the broker does not answer ({error}); ask again for {names}"
            ) from None


def enqueue_search(
    path: str | Path,
    title: str | None = None,
    uploader: str | None = None,
    external_id: str | None = None,
    url: str | None = None,
    uploaded_at: str | None = None,
    *,
    priority: Priority = Priority.URGENT,
    asked_by: str | None = None,
) -> str:
    """Register a query video and ask for its search; returns the search's id at once.

    The last four tell of the upload: who it is by, in whatever words the caller's system has
    (allow-lists name it), the platform's own id of it, where it is, and when it was uploaded, as of
    ISO 8601. The same content told of again, with other words, is another upload.
    """
    upload = read_upload(uploader, external_id, url, uploaded_at)
    query_id = process_engine().register(Path(path), title)
    return enqueue_video(query_id, upload, priority, asked_by)


def enqueue_video(
    query_id: str,
    upload: Upload = UNKNOWN,
    priority: Priority = Priority.URGENT,
    asked_by: str | None = None,
) -> str:
    """Ask for a search of a registered video, and tell of an upload of it."""
    with transaction(process_engine().database) as connection:
        catalogue.read_video(connection, query_id)
        if upload != UNKNOWN:
            note_upload(connection, query_id, upload)
        search_id = searches.create_search(connection, query_id, asked_by=asked_by)
    send([Message(SEARCH, {"search_id": search_id}, priority.level)])
    return search_id


@app.task(name=INGEST, **PATIENT)
def ingest(video_id: str) -> None:
    """Decode and describe a registered video; a new reference is compared with the others."""
    engine = process_engine()
    video = engine.ingest(video_id, wait=False)
    log.info("ingest video=%s status=%s reason=%s", video_id, video.status, video.reason)
    if video.is_reference and video.status == VideoStatus.READY:
        _welcome(engine, video_id)


def _welcome(engine: RetrievalEngine, reference_id: str) -> None:
    for message in engine.welcome(reference_id):
        send([message])


@app.task(name=SEARCH, **PATIENT)
def search(search_id: str) -> None:
    """Plan a search: describe its query, find candidates, send them to be localized."""
    messages = process_engine().plan(search_id)
    log.info("search search=%s messages=%d", search_id, len(messages))
    send(messages)


@app.task(name=RESCAN, **PATIENT)
def rescan(reference_id: str) -> None:
    """Look for a reference in the uploads that were searched before."""
    engine = process_engine()
    with _counted(engine, rescan):
        messages = engine.rescan(reference_id)
    log.info("rescan reference=%s messages=%d", reference_id, len(messages))
    send(messages)


def _counted(engine: RetrievalEngine, task: Task) -> AbstractContextManager[None]:
    """The turn of the message in hand, for a task without a row that would count its attempts."""
    message = task.request
    most = engine.settings.max_attempts
    return deliveries.counted(engine.database, message.id, task.name, message.delivery_info, most)


def _tell_registrant(arguments: Mapping[str, Any], error: Refused) -> None:
    """A refused registration stands in the row of its video, if its id can be one."""
    try:
        wanted = read_arguments(ingest.run, [arguments.get("video_id")], {})
    except Refused:
        return
    with transaction(process_engine().database) as connection:
        catalogue.refuse_foreign(connection, wanted["video_id"], error.code, str(error))


@app.task(name=REGISTER, tell=staticmethod(_tell_registrant), **PATIENT)
def register(
    video_id: str,
    descriptors: str,
    fingerprint: str,
    title: str | None = None,
    is_reference: bool = False,
    uploader: str | None = None,
    external_id: str | None = None,
    url: str | None = None,
    uploaded_at: str | None = None,
) -> None:
    """A foreign engine's video: its own id, and a file of descriptors that the workers can read.

    What is wrong with them stands in the video's row, where the sender looks. The last four tell of
    an upload of it; sent again with others, of another one.
    """
    engine = process_engine()
    try:
        upload = read_upload(uploader, external_id, url, uploaded_at)
        with _counted(engine, register):
            stored = _read_foreign(engine.store, descriptors, fingerprint)
    except ServiceUnavailable:
        raise  # the store is away, not the descriptors bad
    except RetrievalError as error:
        log.warning("register video=%s refused: %s", video_id, error)
        with transaction(engine.database) as connection:
            catalogue.refuse_foreign(connection, video_id, error.code, str(error))
        return
    with transaction(engine.database) as connection:
        catalogue.register_foreign(connection, video_id, title, duration=float(stored.frames))
        catalogue.record_descriptors(
            connection,
            video_id,
            fingerprint,
            descriptors,
            stored.frames,
            stored.descriptors.shape[1],
        )
        if upload != UNKNOWN:
            note_upload(connection, video_id, upload)
        if is_reference:
            catalogue.make_reference(connection, video_id)
    log.info("register video=%s frames=%d", video_id, stored.frames)
    # Descriptors of another kind are compared by whoever made them, not by this engine's index.
    if is_reference and fingerprint == engine.descriptor.fingerprint.key:
        _welcome(engine, video_id)
    if upload != UNKNOWN:
        # It may have been compared before: the claims on it are to be judged by this upload, too.
        send([Message(LOCALIZE, {"query_id": video_id, "reference_ids": []})])


def _read_foreign(store: Store, descriptors: str, fingerprint: str) -> StoredDescriptors:
    if not fingerprint:
        raise FingerprintMismatch(
            "the fingerprint is empty; name what made the descriptors, so that they mix with "
            "nothing else"
        )
    if "://" not in descriptors and not Path(descriptors).is_absolute():
        raise NotFound(
            f"{descriptors!r} is a relative path, and workers have folders of their own; "
            "give an absolute path or a file:// URL"
        )
    return store.read(descriptors, fingerprint)


@app.task(name=SWEEP, expires=60)
def sweep() -> None:
    """Send again what got lost. Every `vcl worker` does it beside its work; one at a time does."""
    try:
        engine = process_engine()
        messages = sweep_lost_work(engine.database, engine.settings, _count_messages)
    except (RetrievalError, SQLAlchemyError, *BROKER_ERRORS) as error:
        log.warning("sweep put off: %s", first_line(error))
        return
    if messages:
        log.warning("sweep resent=%d", len(messages))
    send(messages)


def first_line(error: Exception) -> str:
    """What happened, without the statement that SQLAlchemy adds to it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _count_messages(task: str) -> int:
    """How many messages wait in the queue of that task, whatever their priority."""
    queue = app.amqp.router.route({}, task)["queue"].name
    with app.connection_for_read() as connection:
        client = connection.default_channel.client
        return sum(client.llen(each) for each in _lists_of(queue))


def queue_heads(queues: Sequence[str]) -> tuple[str | None, ...]:
    """The message that is taken next of each queue and priority; None: there is none."""
    with app.connection_for_read() as connection:
        client = connection.default_channel.client
        return tuple(client.lindex(each, -1) for queue in queues for each in _lists_of(queue))


def _lists_of(queue: str) -> list[str]:
    """The lists in which Redis holds a queue: one a step of priority, the most urgent first."""
    steps = app.conf.broker_transport_options["priority_steps"]
    return [queue if step == 0 else f"{queue}\x06\x16{step}" for step in steps]
