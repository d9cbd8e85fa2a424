"""The schema goes up and down, by one process at a time, and errors of the server are sentences."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from retrieval.database import check_schema, connect, current_revision, migrate, transaction
from retrieval.errors import BadSetting, SchemaOutdated, ServiceUnavailable
from retrieval.services import Endpoints
from tests.conftest import run_sql

ROOT = Path(__file__).parents[2]
REVISIONS = sorted(path.name[:4] for path in (ROOT / "migrations/versions").glob("[0-9]*.py"))


@pytest.fixture
def empty_database(services: Endpoints) -> Iterator[str]:
    name = "unmigrated"
    run_sql(services.database_url, f"CREATE DATABASE {name}")
    url = make_url(services.database_url).set(database=name).render_as_string(False)
    yield url
    connect(url).dispose()
    run_sql(services.database_url, f"DROP DATABASE {name} WITH (FORCE)")


def things_of(url: str) -> set[tuple[str, str]]:
    """Tables, views, functions, triggers, columns and constraints of the schema."""
    with connect(url).begin() as connection:
        return {
            (row[0], row[1])
            for row in connection.execute(
                text("""
                SELECT 'relation', relname::text FROM pg_class
                      WHERE relnamespace IN (SELECT oid FROM pg_namespace
                                             WHERE nspname IN ('public', 'turns'))
                UNION SELECT 'function', proname FROM pg_proc
                      WHERE pronamespace = 'public'::regnamespace
                UNION SELECT 'trigger', tgname FROM pg_trigger WHERE NOT tgisinternal
                UNION SELECT 'column', table_name || '.' || column_name
                      FROM information_schema.columns WHERE table_schema = 'public'
                UNION SELECT 'constraint', conrelid::regclass || ': ' || pg_get_constraintdef(oid)
                      FROM pg_constraint WHERE connamespace = 'public'::regnamespace""")
            )
        }


def test_each_revision_down_undoes_exactly_its_revision_up(empty_database: str):
    stages = ["base", *REVISIONS]
    seen = {}
    for stage in stages:
        migrate(empty_database, stage)
        seen[stage] = {each for each in things_of(empty_database) if "alembic" not in each[1]}
    for earlier, later in itertools.pairwise(stages):
        assert seen[earlier] != seen[later], f"{later} changed nothing"
    for stage in reversed(stages):
        migrate(empty_database, stage)
        things = {each for each in things_of(empty_database) if "alembic" not in each[1]}
        assert things == seen[stage]
    assert current_revision(connect(empty_database)) is None


def test_migrating_twice_or_to_where_it_is_changes_nothing(database: str):
    things = things_of(database)
    migrate(database)
    migrate(database, REVISIONS[-1])
    assert things_of(database) == things


def test_an_empty_database_can_be_migrated_to_base(empty_database: str):
    migrate(empty_database, "base")
    assert current_revision(connect(empty_database)) is None


def test_processes_that_migrate_at_once_all_succeed(empty_database: str):
    code = "import sys; from retrieval.database import migrate; migrate(sys.argv[1])"
    children = [
        subprocess.Popen([sys.executable, "-c", code, empty_database], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    words = [child.communicate()[1].decode() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], words
    check_schema(connect(empty_database))


def test_a_schema_without_migrations_names_the_command(empty_database: str):
    with pytest.raises(SchemaOutdated, match=r"revision none.*run `vcl migrate`"):
        check_schema(connect(empty_database))


def test_a_schema_one_revision_behind_names_both_revisions(database: str):
    migrate(database, REVISIONS[-2])
    with pytest.raises(SchemaOutdated, match=rf"{REVISIONS[-2]}.*{REVISIONS[-1]}.*`vcl migrate`"):
        check_schema(connect(database))


def test_a_reader_who_leaves_a_query_open_does_not_stop_the_site_by_a_migration(
    database: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrieval.database.MIGRATION_WAIT", "100ms")
    with connect(database).begin() as reader:
        reader.execute(text("SELECT count(*) FROM videos"))
        with pytest.raises(ServiceUnavailable, match="lock timeout"):
            migrate(database, "base")
    assert current_revision(connect(database)) == REVISIONS[-1]


def test_a_revision_nobody_wrote_is_refused_with_those_that_exist(database: str):
    with pytest.raises(SchemaOutdated, match="no revision '9999'; known: base, 0001"):
        migrate(database, "9999")


def test_a_database_of_a_later_version_is_left_alone(db: Engine, database: str):
    with transaction(db) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for touch in (lambda: check_schema(db), lambda: migrate(database)):
        with pytest.raises(SchemaOutdated, match="9999, which this version does not know"):
            touch()


@pytest.mark.parametrize(("since", "may_run"), [(REVISIONS[-1], True), ("9999", False)])
def test_code_runs_on_a_later_schema_only_if_that_says_so(db: Engine, since: str, may_run: bool):
    with transaction(db) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(
            text("UPDATE schema_support SET revision = '9999', runs_since = :since"),
            {"since": since},
        )
    if may_run:
        check_schema(db)
    else:
        with pytest.raises(SchemaOutdated, match="9999, which this version does not know"):
            check_schema(db)


def test_every_migration_declares_which_code_may_run_on_it(db: Engine, database: str):
    def declared() -> tuple[str, str]:
        with transaction(db) as connection:
            [row] = connection.execute(text("SELECT revision, runs_since FROM schema_support"))
        return row.revision, row.runs_since

    revision, since = declared()
    assert revision == REVISIONS[-1]
    assert since in REVISIONS
    migrate(database, "0011")
    assert declared()[0] == "0011"
    assert declared()[1] < "0011", "a default and an index disturb no older code"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2"])
def test_a_url_as_people_write_it_connects(database: str, scheme: str):
    url = database.replace("postgresql+psycopg2", scheme)
    check_schema(connect(url))
    connect(url).dispose()


def test_a_url_that_is_none_is_refused_with_how_to_write_it():
    with pytest.raises(BadSetting, match=r"use postgresql://user:password@host/name"):
        connect("db.example.org")


def test_a_server_that_is_away_is_told_as_a_sentence_without_the_password():
    away = connect("postgresql+psycopg2://ana:s3cret@127.0.0.1:1/vcl")
    with (
        pytest.raises(ServiceUnavailable, match=r"does not answer.*`vcl up`") as caught,
        transaction(away),
    ):
        pass
    assert "s3cret" not in str(caught.value)


def test_a_host_whose_name_nobody_knows_is_a_server_that_is_away():
    lost = connect("postgresql://vcl@no-such-host.invalid/vcl")
    with pytest.raises(ServiceUnavailable, match=r"does not answer"), transaction(lost):
        pass


@pytest.mark.parametrize(
    "statements",
    [
        # A standby after a failover, a time limit, a full disk.
        "SET TRANSACTION READ ONLY; INSERT INTO videos (id, title) VALUES ('a', 'a')",
        "SET LOCAL statement_timeout = '20ms'; SELECT pg_sleep(5)",
        "DO $$ BEGIN RAISE EXCEPTION 'disk full' USING ERRCODE = '53100'; END $$",
    ],
    ids=["read-only", "timeout", "disk-full"],
)
def test_a_server_that_cannot_work_for_a_while_is_waited_for(db: Engine, statements: str):
    with (
        pytest.raises(ServiceUnavailable, match=r"cannot do what it is asked .*goes on by itself"),
        transaction(db) as connection,
    ):
        connection.exec_driver_sql(statements)


def test_a_connection_cut_in_the_middle_is_a_server_that_is_away(db: Engine):
    with pytest.raises(ServiceUnavailable), transaction(db) as connection:
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    with transaction(db) as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1


def test_a_process_that_stops_in_a_transaction_does_not_hold_its_rows_for_ever(db: Engine):
    for _ in range(2):  # on a new connection, and on one that was rolled back to the pool
        with db.connect() as connection:
            limit = connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar()
            connection.rollback()
        assert limit == "5min"


def test_what_the_server_refuses_is_no_outage_and_leaves_nothing_behind(db: Engine):
    insert = text("INSERT INTO videos (id, title) VALUES ('a', 'a')")

    def insert_twice() -> None:
        with transaction(db) as connection:
            connection.execute(insert)
            connection.execute(insert)

    with pytest.raises(IntegrityError):
        insert_twice()
    with transaction(db) as connection:
        assert connection.execute(text("SELECT count(*) FROM videos")).scalar() == 0
