"""The courier: sends what is due, each webhook in a lane of its own.

In: a database. Out: messages to receivers, and what they answered. Any number of processes may have
one: a delivery is taken by one of them. No connection to PostgreSQL is held while one is sent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from retrieval.database import transaction
from retrieval.errors import RetrievalError
from vcl_plugin.webhooks.addresses import Resolve, resolve_host
from vcl_plugin.webhooks.deliveries import forget_delivered, list_due, note_answer, take_delivery
from vcl_plugin.webhooks.sending import TOTAL_SECONDS, Answer, send_message
from vcl_plugin.webhooks.signing import sign_message

log = logging.getLogger(__name__)

PAUSE = 1.0  # seconds between two looks
FORGET_SECONDS = 3600.0


class Courier:
    """A thread that looks, and one for each webhook for which something waits.

    A receiver that is slow or broken keeps its own lane busy, and no other.
    """

    def __init__(
        self,
        database: Engine,
        allows_private: bool,
        resolve: Resolve = resolve_host,
        seconds: float = TOTAL_SECONDS,
    ) -> None:
        self.database = database
        self.allows_private = allows_private
        self.resolve = resolve
        self.seconds = seconds
        self._is_over = threading.Event()
        self._lanes: dict[int, threading.Thread] = {}
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin no attempt any more; one under way is sent again if it is not over soon."""
        self._is_over.set()
        for thread in (self._thread, *self._lanes.values()):
            thread.join(timeout=2.0)

    def deliver_next(self, webhook_id: int, delivery_id: int | None = None) -> Answer | None:
        """Send one message that is due; None: there is none."""
        with transaction(self.database) as connection:
            parcel = take_delivery(connection, webhook_id, delivery_id)
        if parcel is None:
            return None
        signed = sign_message(parcel.secret, parcel.message_id, int(time.time()), parcel.body)
        answer = send_message(
            parcel.url, signed, parcel.body, self.allows_private, self.resolve, self.seconds
        )
        with transaction(self.database) as connection:
            note_answer(connection, parcel, answer)
        if not answer.is_good:
            log.warning("webhook=%d attempt=%d: %s", webhook_id, parcel.attempt, answer.said)
        return answer

    def _run(self) -> None:
        forgotten = -FORGET_SECONDS
        while not self._is_over.is_set():
            try:
                with transaction(self.database) as connection:
                    due = list_due(connection)
                    if time.monotonic() - forgotten > FORGET_SECONDS:
                        forget_delivered(connection)
                        forgotten = time.monotonic()
            except (RetrievalError, SQLAlchemyError) as error:
                log.warning("webhooks wait: %s", str(error).splitlines()[0])
                due = []
            for webhook_id in due:
                self._open_lane(webhook_id)
            self._is_over.wait(PAUSE)

    def _open_lane(self, webhook_id: int) -> None:
        lane = self._lanes.get(webhook_id)
        if lane is None or not lane.is_alive():
            name = f"webhook-{webhook_id}"
            lane = threading.Thread(target=self._clear, args=(webhook_id,), name=name, daemon=True)
            self._lanes[webhook_id] = lane
            lane.start()

    def _clear(self, webhook_id: int) -> None:
        try:
            while not self._is_over.is_set() and self.deliver_next(webhook_id):
                pass
        except (RetrievalError, SQLAlchemyError) as error:
            log.warning("webhook=%d waits: %s", webhook_id, str(error).splitlines()[0])


@contextmanager
def running_courier(database: Engine, allows_private: bool) -> Iterator[Courier]:
    """A courier beside the work of the block."""
    courier = Courier(database, allows_private)
    courier.start()
    try:
        yield courier
    finally:
        courier.stop()
