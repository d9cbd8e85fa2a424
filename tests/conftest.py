"""Real servers for the tests: one PostgreSQL and one Valkey a session, a fresh database a test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from celery import Celery
from sqlalchemy.engine import make_url

from retrieval.database import connect, migrate
from retrieval.services import Endpoints, ensure_services, stop_services
from retrieval.settings import Settings

_numbers = itertools.count(1)

# Two processes of tests fill two cores. Threads beside them would wait for each other in loops that
# burn the cores they wait for: tests of the network took ten times as long. Read when torch, FAISS
# and NumPy's BLAS are loaded, which none is yet, and inherited by every process that a test starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Files that take longest, for they wait for real workers: begun last, one would end alone.
LONG_FILES = (
    "faults/test_faults.py",
    "test_readme.py",
    "end_to_end/",
    "hostile/test_site.py",
    "hostile/test_media.py",
    "retrieval/test_services.py",
    "retrieval/index/test_index_crashes.py",
    "vcl_plugin/training/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; within a file, and among the others, the order stays."""

    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        places = (number for number, each in enumerate(LONG_FILES) if f"tests/{each}" in path)
        return next(places, len(LONG_FILES))

    items.sort(key=place)


def run_sql(url: str, *statements: str) -> None:
    """Run each statement by itself, outside a transaction, as CREATE DATABASE wants it."""
    connection = psycopg2.connect(
        make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    )
    connection.autocommit = True
    try:
        for statement in statements:
            connection.cursor().execute(statement)
    finally:
        connection.close()


@pytest.fixture(scope="session")
def settings() -> Iterator[Settings]:
    """Settings of a home for this session; each worker of pytest-xdist has its own."""
    home = Path(tempfile.mkdtemp(prefix="vcl-test-"))
    home.chmod(0o711)  # as root, the servers' account has to pass
    yield Settings(home=home)
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def services(settings: Settings) -> Iterator[Endpoints]:
    """The two URLs of servers that are running; stopped at the end, whatever happened."""
    try:
        endpoints = ensure_services(settings)
        # Nothing here has to survive a power cut, and CREATE DATABASE is mostly waiting for disks.
        run_sql(endpoints.database_url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        yield endpoints
    finally:
        stop_services(settings)


@pytest.fixture(scope="session")
def migrated_template(services: Endpoints) -> str:
    """Name of a database with every migration run, to copy for each test."""
    name = "migrated_template"
    run_sql(services.database_url, f"CREATE DATABASE {name}")
    url = make_url(services.database_url).set(database=name).render_as_string(False)
    migrate(url)
    connect(url).dispose()  # a template may have no session
    return name


@pytest.fixture
def database(services: Endpoints, migrated_template: str) -> Iterator[str]:
    """URL of a migrated, empty database of this test's own."""
    name = f"test_{next(_numbers)}"
    run_sql(services.database_url, f"CREATE DATABASE {name} TEMPLATE {migrated_template}")
    url = make_url(services.database_url).set(database=name).render_as_string(False)
    yield url
    connect(url).dispose()
    run_sql(services.database_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def celery_app(services: Endpoints, settings: Settings) -> Celery:
    """The app, configured once for this session's broker.

    Its configuration is read at the first use and starts embedded servers where no URL says
    otherwise, so that use must happen here and not in the user's own home.
    """
    from retrieval.tasks import app

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VCL_HOME", str(settings.home))
        patch.setenv("VCL_DATABASE_URL", services.database_url)
        patch.setenv("VCL_BROKER_URL", services.broker_url)
        app.loader.import_default_modules()
        assert app.conf.broker_url == services.broker_url
    return app


@pytest.fixture
def site_environment(
    database: str,
    services: Endpoints,
    celery_app: Celery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """This process as a user's: VCL_* point to the session's servers and a database of its own."""
    from retrieval.process import forget_process

    monkeypatch.setenv("VCL_DATABASE_URL", database)
    monkeypatch.setenv("VCL_BROKER_URL", services.broker_url)
    monkeypatch.setenv("VCL_HOME", str(tmp_path / "home"))
    forget_process()
    yield
    forget_process()
