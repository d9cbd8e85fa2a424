"""A real application on a real database, with claims of two owners and a key of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.process import process_engine
from tests.vcl_plugin import world
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.web import keys
from vcl_plugin.web.app import create_app


@dataclass(frozen=True)
class Desk:
    """The application, and the keys and claims of its world."""

    client: TestClient
    engine: RetrievalEngine
    keys: dict[str, str]
    claims: dict[str, int]

    def as_(self, name: str) -> dict[str, str]:
        """Headers of whoever has that key."""
        return {"Authorization": f"Bearer {self.keys[name]}"}


@pytest.fixture
def desk(site_environment: None) -> Iterator[Desk]:
    engine = process_engine()
    with transaction(engine.database) as connection:
        world.add_reference(connection, "harbour", "Northlight")
        world.add_reference(connection, "tram", "Ostrava")
        claims = {}
        for name, reference, seconds in (
            ("ten", "harbour", 10),
            ("twenty", "harbour", 20),
            ("forty", "tram", 40),
        ):
            world.add_upload(connection, name, f"by {name}")
            world.record(connection, name, reference, world.segment(0, seconds))
            claims[name] = settle_claims(connection, name)[0]
        connection.execute(text("UPDATE claims SET status = 'potential'"))
        made = {
            role if owner is None else f"{role} of {owner}": keys.add_key(
                connection,
                role if owner is None else f"{role} of {owner}",
                role,
                "test",
                None if owner is None else [owner],
            )
            for role in keys.ROLES
            for owner in (None, "Northlight", "Ostrava")
        }
    with TestClient(create_app(engine), raise_server_exceptions=False) as client:
        yield Desk(client, engine, made, claims)


@pytest.fixture
def sign_in(desk: Desk) -> Callable[[str], dict[str, str]]:
    return desk.as_
