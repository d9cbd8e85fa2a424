"""A database with claims of two owners, and real receivers on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine

from retrieval.database import connect, transaction
from tests.vcl_plugin import world
from tests.vcl_plugin.cli.conftest import vcl as vcl
from tests.vcl_plugin.web.conftest import desk as desk
from tests.vcl_plugin.webhooks.receiver import Receiver, running_receiver
from vcl_plugin.claims.settlement import settle_claims


@pytest.fixture
def db(database: str) -> Engine:
    engine = connect(database)
    with transaction(engine) as connection:
        world.add_reference(connection, "harbour", "Northlight")
        world.add_reference(connection, "tram", "Ostrava")
    return engine


@pytest.fixture
def receive() -> Iterator[Callable[[], Receiver]]:
    """Starts receivers; they end with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(running_receiver())


def raise_claim(db: Engine, name: str, reference: str = "harbour") -> int:
    """An upload that copies ten seconds of a reference."""
    with transaction(db) as connection:
        world.add_upload(connection, name, f"by {name}")
        world.record(connection, name, reference, world.segment(0, 10))
        return settle_claims(connection, name)[0]
