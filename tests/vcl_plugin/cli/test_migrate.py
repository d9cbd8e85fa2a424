"""`vcl migrate`: what hinders a step is told in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy.engine import make_url

from retrieval.database import connect
from retrieval.services import Endpoints
from tests.conftest import run_sql
from tests.vcl_plugin.cli.conftest import Said

Vcl = Callable[..., Said]


@pytest.fixture
def closed_database(services: Endpoints) -> Iterator[str]:
    """A database in which a role may connect and make nothing."""
    run_sql(
        services.database_url,
        "CREATE DATABASE closed",
        "CREATE ROLE guest LOGIN",
    )
    url = make_url(services.database_url).set(database="closed", username="guest")
    yield url.render_as_string(False)
    connect(url.render_as_string(False)).dispose()
    run_sql(services.database_url, "DROP DATABASE closed WITH (FORCE)", "DROP ROLE guest")


@pytest.mark.usefixtures("site_environment")
def test_migrating_without_the_right_to_is_told_in_a_sentence(
    vcl: Vcl, closed_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCL_DATABASE_URL", closed_database)
    said = vcl("migrate")
    assert said.code == 1
    assert "permission denied for schema public" in said.err
    assert "GRANT" in said.err
