"""Messages that come back: counted, so that one which kills its worker does so a few times only.

In: a message's id and whether it was delivered before. Out: its turn, or `Refused`.
Work that has a row counts its attempts there (`leases`); this is for tasks that have none yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.errors import Refused


@contextmanager
def counted(
    database: Engine, message: str | None, task: str, info: Mapping[str, Any] | None, most: int
) -> Iterator[None]:
    """A turn of that message. One that ends, well or with an error, is forgotten: what counts are
    turns that ended with their process.
    """
    if message is None or not (info or {}).get("redelivered"):
        yield
        return
    with transaction(database) as connection:
        returns = connection.execute(
            text("""
            INSERT INTO deliveries (message, task) VALUES (:message, :task)
            ON CONFLICT (message) DO UPDATE SET returns = deliveries.returns + 1,
                   returned_at = now()
            RETURNING returns"""),
            {"message": message, "task": task},
        ).scalar_one()
    try:
        if returns >= most:
            raise Refused(
                f"{task} came back {returns} times without an end, its worker ended before; look "
                "at what it names, correct that, and send it again",
                code="attempts_exhausted",
            )
        yield
    finally:
        with transaction(database) as connection:
            connection.execute(
                text("DELETE FROM deliveries WHERE message = :message"), {"message": message}
            )
