"""Every PostgreSQL that Debian put on this machine runs every migration, up and down."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from retrieval import database
from retrieval.database import check_schema, connect, current_revision, migrate
from retrieval.errors import Refused

SERVERS = sorted(
    path.parent
    for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")
    if int(path.parts[-3]) >= database.OLDEST_POSTGRES
)


def account() -> dict[str, Any]:
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam("nobody")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@pytest.fixture(params=SERVERS, ids=[path.parts[-2] for path in SERVERS])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server of that version, alone on a socket of its own."""
    folder = Path(tempfile.mkdtemp(prefix="vcl-version-"))
    programs: Path = request.param
    options: dict[str, Any] = {"check": True, "capture_output": True, "cwd": "/"} | account()
    if "user" in options:
        os.chown(folder, options["user"], options["group"])
    data = str(folder / "data")
    try:
        subprocess.run([programs / "initdb", "-D", data, "-U", "vcl", "--auth=trust"], **options)
        start = f"-k {folder} -c listen_addresses= -c fsync=off"
        log = str(folder / "log")
        subprocess.run(
            [programs / "pg_ctl", "-D", data, "-l", log, "-w", "-o", start, "start"], **options
        )
        try:
            yield f"postgresql://vcl@/postgres?host={folder}"
        finally:
            subprocess.run([programs / "pg_ctl", "-D", data, "-m", "fast", "stop"], **options)
    finally:
        shutil.rmtree(folder)


def test_every_migration_runs_up_down_and_up_again(server: str) -> None:
    engine = connect(server)
    for revision in ("head", "base", "head"):
        migrate(server, revision)
    check_schema(engine)
    with engine.begin() as connection:
        views = connection.execute(
            text("SELECT viewname FROM pg_views WHERE schemaname = 'public'")
        ).scalars()
        for view in views:
            connection.exec_driver_sql(f'SELECT * FROM "{view}"')
    engine.dispose()


def test_a_server_that_is_too_old_is_told_in_a_sentence(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A version that nobody has yet makes today's the old one: 14 is in no Debian of today.
    monkeypatch.setattr(database, "OLDEST_POSTGRES", 99)
    before = current_revision(connect(database_url))
    with pytest.raises(Refused, match="the schema needs 99 or later"):
        migrate(database_url)
    assert current_revision(connect(database_url)) == before


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database"))
