"""The ear of a worker: what arrives is a task, or is set aside with a line in the log.

In: messages from the broker. Out: tasks for the worker's processes. Named in celeryconfig.py.

Celery itself refuses a message of a wrong serializer or name, but one whose parts are of wrong
types ends the worker, and the message, not acknowledged, would end the next one, too. Celery also
takes orders from whoever reaches the broker: to shut down, to leave a queue, to drop a task. Here
it answers questions only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker import loops
from celery.worker.consumer import Consumer
from celery.worker.control import Panel

log = logging.getLogger(__name__)

MALFORMED = (ValueError, TypeError, LookupError, AttributeError)
SHOWN = 200
# What a worker answers when it is asked over the broker; it obeys nobody there.
QUESTIONS = frozenset({"ping", "active_queues", "active", "reserved", "stats", "registered"})


class SturdyConsumer(Consumer):
    """Celery's consumer, which no message ends."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for order in set(Panel.data) - QUESTIONS:
            del Panel.data[order]
        super().__init__(*args, **kwargs)

    def loop(self, *args: Any) -> None:
        """Celery's own loop. What in a queue is no message at all is gone once it was taken; then
        the connection is made anew, as after a loss, and the work in hand goes on.
        """
        run = loops.asynloop if self.hub else loops.synloop
        try:
            run(*args)
        except MALFORMED as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConnectionError(f"a queue held what is no message ({reason:.200})") from error

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        receive = super().create_task_handler(*args, **kwargs)

        def receive_or_set_aside(message: Any) -> None:
            try:
                receive(message)
            except MALFORMED as error:
                log.error(
                    "a message is no task (%s: %s) and is set aside; its headers: %.*s",
                    type(error).__name__,
                    error,
                    SHOWN,
                    ascii(message.headers),
                )
                message.reject_log_error(log, self.connection_errors)

        return receive_or_set_aside
