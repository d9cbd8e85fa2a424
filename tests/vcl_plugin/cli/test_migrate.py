"""`vcl migrate`: a step back is never taken unasked, and what hinders a step is a sentence."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from retrieval.database import connect, current_revision, transaction
from retrieval.services import Endpoints
from retrieval.services.embedded import find_program
from tests.conftest import run_sql
from tests.vcl_plugin.cli.conftest import Said
from tests.vcl_plugin.world import add_reference, add_upload, record, segment
from vcl_plugin.claims.settlement import settle_claims

Vcl = Callable[..., Said]


@pytest.mark.usefixtures("site_environment")
def test_a_step_back_does_not_drop_claims_unasked(vcl: Vcl, database: str, tmp_path: Path) -> None:
    with transaction(connect(database)) as connection:
        reference = add_reference(connection, "film", "studio")
        upload = add_upload(connection, "copy")
        record(connection, upload, reference, segment(0, 30))
        settle_claims(connection, upload)
    before = current_revision(connect(database))
    said = vcl("migrate", "base")
    assert said.code == 1
    assert "1 claims" in said.err
    assert "2 videos" in said.err
    assert "--backup FILE" in said.err
    assert current_revision(connect(database)) == before
    assert len(json.loads(vcl("claims", "list", "--json").out)) == 1

    backup = tmp_path / "before.dump"
    assert vcl("migrate", "base", "--yes", "--backup", backup).code == 0
    assert current_revision(connect(database)) is None
    pg_restore = find_program("pg_restore")
    listed = subprocess.run([str(pg_restore), "-l", backup], capture_output=True, text=True)
    assert "TABLE DATA public claims" in listed.stdout
    assert backup.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("site_environment")
def test_a_step_back_that_drops_nothing_is_asked_too_and_a_step_up_is_not(
    vcl: Vcl, database: str
) -> None:
    said = vcl("migrate", "0001")
    assert (said.code, "going back to 0001 drops" in said.err) == (1, True)
    assert vcl("migrate", "0001", "--yes").code == 0
    assert vcl("migrate").code == 0
    assert vcl("migrate", "head").code == 0


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
