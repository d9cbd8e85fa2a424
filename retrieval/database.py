"""The connection to PostgreSQL: engines, transactions, migrations.

In: a database URL. Out: SQLAlchemy engines that know whether the schema fits the code.
The only place that creates an engine. Alembic is imported where the schema is changed: it takes
longer to import than all the rest that most commands need.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from retrieval.errors import (
    BadSetting,
    Refused,
    SchemaIncomplete,
    SchemaOutdated,
    ServiceUnavailable,
)
from retrieval.settings import mask_password
from retrieval.work import locks

if TYPE_CHECKING:
    from alembic.config import Config

OLDEST_POSTGRES = 15  # the first that joins multiranges, which count overlapping seconds once
_READ_ONLY = "25006"  # SQLSTATE of a write in a transaction that may only read
MIGRATION_WAIT = "10s"  # for a table that others use
_LOCK_TIMEOUT = "55P03"  # of a lock that others held for too long
_MISSING = ("42P01", "42703")  # of a table or column that is not there
_FORBIDDEN = "42501"  # of what the role may not do


@lru_cache(maxsize=4)
def _engine_of_process(url: str, process: int) -> Engine:
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        raise BadSetting(
            f"VCL_DATABASE_URL is {mask_password(url)!r}; use postgresql://user:password@host/name"
        ) from None
    engine = create_engine(
        # As everybody writes it, without a driver, SQLAlchemy would take one we do not ship.
        address.set(drivername="postgresql+psycopg2"),
        pool_pre_ping=True,
        pool_size=4,
        max_overflow=4,
        connect_args={"application_name": "vcl", "connect_timeout": 10},
    )
    event.listen(engine, "connect", _limit_idleness)
    return engine


def _limit_idleness(connection: Any, record: Any) -> None:
    """A process that stops in a transaction, or a machine that vanishes, would hold its rows'
    locks for as long as the server believes in the connection: for ever, or two hours.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = '5min'")
    connection.commit()


def connect(url: str) -> Engine:
    """The engine of this process for that database; a forked child gets one of its own."""
    return _engine_of_process(url, os.getpid())


@contextmanager
def transaction(database: Engine) -> Iterator[Connection]:
    """A transaction that commits at the end; what PostgreSQL says no to is told as a sentence.

    `ServiceUnavailable` where it does not answer or cannot work for a while (a full disk, a standby
    that may not write), `Refused` for a value that it cannot keep.
    """
    try:
        with database.begin() as connection:
            yield connection
    except PoolTimeout:
        raise ServiceUnavailable(
            "every connection to PostgreSQL has been in use for half a minute; try again when "
            "fewer ask at once"
        ) from None
    except (ValueError, DBAPIError) as error:
        if _is_unkeepable(error):
            raise Refused(
                f"PostgreSQL cannot keep a value that was given ({_unkeepable_reason(error)}); "
                "shorten or correct it",
                code="bad_value",
            ) from error
        if not isinstance(error, DBAPIError):
            raise
        where = mask_password(database.url.render_as_string(hide_password=True))
        if _is_hindered(error):
            raise ServiceUnavailable(
                f"PostgreSQL at {where} cannot do what it is asked ({_first_line(error)}); its log "
                "says more, and work that waits for it goes on by itself"
            ) from error
        if _server_code(error) in _MISSING:
            raise SchemaIncomplete(
                f"the database lacks what this version needs ({_first_line(error)}); run "
                "`vcl migrate`"
            ) from error
        if _server_code(error) == _FORBIDDEN:
            raise Refused(
                f"PostgreSQL at {where} does not allow it ({_first_line(error)}); let its owner "
                "GRANT that right to this role, such as CREATE ON its database and ON SCHEMA "
                "public for `vcl migrate`"
            ) from error
        if not _is_unreachable(error):
            raise
        raise ServiceUnavailable(
            f"PostgreSQL at {where} does not answer ({_first_line(error)}); "
            "start it with `vcl up`, or correct VCL_DATABASE_URL"
        ) from error


def migrate(url: str, revision: str = "head") -> None:
    """Bring the schema to `revision`, up or down. Safe to call twice and from two processes."""
    with transaction(connect(url)) as connection:
        _require_version(connection)
        locks.take_migration(connection)
        # What a step waits for, all others wait for behind it: a query left open for the evening
        # would stop the site.
        connection.execute(
            text("SELECT set_config('lock_timeout', :wait, true)"), {"wait": MIGRATION_WAIT}
        )
        _step(connection, revision)


def _require_version(connection: Connection) -> None:
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number // 10_000 < OLDEST_POSTGRES:
        raise Refused(
            f"this server is PostgreSQL {number // 10_000}; the schema needs {OLDEST_POSTGRES} or "
            "later: upgrade it, or set VCL_DATABASE_URL to another"
        )


def preview_downgrade(url: str, revision: str) -> list[str] | None:
    """What a step back to `revision` would drop, as words; None where it is no step back.

    Found by doing it in a transaction that is not kept.
    """
    with transaction(connect(url)) as connection:
        current, target, steps = _plan(connection, revision)
        if steps.index(target) >= steps.index(current):
            return None
        locks.take_migration(connection)
        connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        before = _columns(connection)
        rows = {table: _count(connection, table) for table in {name for name, _ in before}}
        attempt = connection.begin_nested()
        _step(connection, revision)
        lost = before - _columns(connection)
        tables = {table for table, _ in before} - {table for table, _ in before - lost}
        attempt.rollback()
    return [f"{rows[table]} {table}" for table in sorted(tables) if rows[table]] + [
        f"{table}.{column} of {rows[table]}"
        for table, column in sorted(lost)
        if table not in tables and rows[table]
    ]


def _step(connection: Connection, revision: str) -> None:
    from alembic import command

    config = _alembic()
    config.attributes["connection"] = connection
    current, target, steps = _plan(connection, revision)
    if steps.index(target) > steps.index(current):
        command.upgrade(config, target)
    elif target != current:
        command.downgrade(config, target)
    _declare_support(connection, config)


def _declare_support(connection: Connection, config: Config) -> None:
    """Write down which code may run on the schema as it is, for code that does not know it."""
    from alembic.script import ScriptDirectory

    if not inspect(connection).has_table("schema_support"):
        return
    current = str(_read_revision(connection))
    scripts = ScriptDirectory.from_config(config).iterate_revisions(current, "base")
    since = max(getattr(each.module, "runs_since", each.revision) for each in scripts)
    connection.execute(text("DELETE FROM schema_support"))
    connection.execute(
        text("INSERT INTO schema_support VALUES (:revision, :since)"),
        {"revision": current, "since": since},
    )


def _plan(connection: Connection, revision: str) -> tuple[str, str, list[str]]:
    """Where the database is, where it shall be, and every revision there is, oldest first."""
    known = list_revisions()
    current = _read_revision(connection)
    target = known[-1] if revision == "head" else revision
    if target not in ("base", *known):
        raise SchemaOutdated(
            f"there is no revision {revision!r}; known: base, {', '.join(known)}, head"
        )
    if current is not None and current not in known:
        raise _newer_database(current)
    return current or "base", target, ["base", *known]


def _columns(connection: Connection) -> set[tuple[str, str]]:
    """Every column of every table of ours."""
    found = connection.execute(
        text("""
        SELECT relname::text, attname::text
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND attnum > 0
          AND NOT attisdropped AND relname NOT IN ('alembic_version', 'schema_support')""")
    )
    return {(row[0], row[1]) for row in found}


def _count(connection: Connection, table: str) -> int:
    quoted = connection.dialect.identifier_preparer.quote(table)
    return int(connection.execute(text(f"SELECT count(*) FROM {quoted}")).scalar_one())


def current_revision(database: Engine) -> str | None:
    with transaction(database) as connection:
        return _read_revision(connection)


def check_schema(database: Engine) -> None:
    """Raise SchemaOutdated unless the database is at the revision this code was written for, or at
    a later one that says that this code may run on it."""
    known = list_revisions()
    with transaction(database) as connection:
        current = _read_revision(connection)
        if current is not None and current not in known:
            if _read_support(connection, current) in known:
                return
            raise _newer_database(current)
    if current != known[-1]:
        raise SchemaOutdated(
            f"the database is at revision {current or 'none'}, this version needs {known[-1]}; "
            "run `vcl migrate`"
        )


def _read_support(connection: Connection, revision: str) -> str | None:
    """The oldest revision whose code may run on that one, if somebody has declared it."""
    if not inspect(connection).has_table("schema_support"):
        return None
    found = connection.execute(
        text("SELECT runs_since FROM schema_support WHERE revision = :revision"),
        {"revision": revision},
    ).scalar()
    return None if found is None else str(found)


def _read_revision(connection: Connection) -> str | None:
    """The revision of the database as Alembic writes it down; None: it was never migrated."""
    there_is = connection.execute(text("SELECT to_regclass('alembic_version') IS NOT NULL"))
    if not there_is.scalar_one():
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def list_revisions() -> list[str]:
    """Every revision this code knows, oldest first: the numbers that its migrations' names begin
    with, in their order."""
    return sorted(path.name[:4] for path in Path(_migrations_folder()).glob("versions/[0-9]*.py"))


def _newer_database(current: str) -> SchemaOutdated:
    return SchemaOutdated(
        f"the database is at revision {current}, which this version does not know; "
        "install the version that migrated it, or a later one"
    )


def _is_unreachable(error: DBAPIError) -> bool:
    """Whether the server went away, rather than refused what it was asked.

    What the server itself says has a code; without one, no server spoke: a name that does not
    resolve, a port that is closed, a connection that was cut.
    """
    if error.connection_invalidated:
        return True
    return isinstance(error, OperationalError) and not _server_code(error)


def _is_hindered(error: DBAPIError) -> bool:
    """Whether the server is there and cannot work: cut off (08), out of disk, memory or
    connections (53), stopped by an operator or a time limit (57), a standby that may only read, a
    lock that others hold.
    """
    if error.connection_invalidated:
        return False
    code = _server_code(error)
    return code.startswith(("08", "53", "57")) or code in (_READ_ONLY, _LOCK_TIMEOUT)


def _server_code(error: DBAPIError) -> str:
    return getattr(error.orig, "pgcode", None) or ""


def _is_unkeepable(error: ValueError | DBAPIError) -> bool:
    """Whether the value is at fault: a NUL, half a character, a number or text beyond bounds."""
    if isinstance(error, DBAPIError):
        code = _server_code(error)
        return code.startswith("22") or code == "54000"
    return isinstance(error, UnicodeEncodeError) or "NUL (0x00)" in str(error)


def _unkeepable_reason(error: ValueError | DBAPIError) -> str:
    if isinstance(error, DBAPIError):
        return _first_line(error)
    return "no valid Unicode" if isinstance(error, UnicodeEncodeError) else "a NUL character"


def _migrations_folder() -> str:
    """`migrations/` at the top of the repository, installed as a subpackage (see setup.py)."""
    return str(Path(import_module("retrieval.migrations").__path__[0]))


def _alembic() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _migrations_folder())
    config.set_main_option("path_separator", "os")
    return config


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else "no answer"
