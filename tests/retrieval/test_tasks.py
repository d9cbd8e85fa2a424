"""The edge to Celery: docs/reference/tasks.md is true, a broker that is away loses nothing."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from celery import Celery
from kombu.exceptions import OperationalError
from sqlalchemy import Engine, text

from retrieval import tasks
from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import ServiceUnavailable
from retrieval.process import process_engine
from retrieval.records import Fingerprint
from retrieval.settings import load_settings
from retrieval.work import catalogue, outdated, searches
from retrieval.work.changes import read_changes
from retrieval.work.messages import INGEST, LOCALIZE, RESCAN, SEARCH, Message
from tests.retrieval.planted_rows import plant_videos, read_row
from tests.retrieval.test_engine import CoarseDescriptor, OtherDescriptor
from tests.retrieval.test_store import unit_rows
from vcl_plugin.cli import worker
from vcl_plugin.cli.ingest import _register, _send_outdated
from vcl_plugin.cli.worker import Supervisor
from vcl_plugin.demo.footage import render_reference

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "tasks.md").read_text(encoding="utf-8")
CODES = (ROOT / "docs" / "reference" / "reason-codes.md").read_text(encoding="utf-8")
ROWS = {
    name: (queue, arguments)
    for name, queue, arguments in re.findall(
        r"^\| `([\w.]+)` \| `(\w+)` \| (?:`(.*?)`)? ?\|", PAGE, re.MULTILINE
    )
}


def registered(app: Celery) -> dict[str, Any]:
    return {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}


def test_the_page_lists_exactly_the_tasks_that_exist(celery_app: Celery):
    assert set(ROWS) == set(registered(celery_app))


@pytest.mark.parametrize("name", ROWS)
def test_the_page_gives_each_task_s_arguments_and_queue(celery_app: Celery, name: str):
    queue, arguments = ROWS[name]
    signature = inspect.signature(registered(celery_app)[name].run)
    actual = ", ".join(
        each.name if each.default is each.empty else f"{each.name}={each.default!r}"
        for each in signature.parameters.values()
    )
    assert arguments == actual
    assert celery_app.conf.task_routes[name]["queue"] == queue
    assert queue in {each.name for each in celery_app.conf.task_queues}


def test_every_reason_code_of_the_code_stands_on_the_page():
    source = "".join(
        (ROOT / path).read_text(encoding="utf-8")
        for path in (
            "retrieval/engine.py",
            "retrieval/work/leases.py",
            "retrieval/work/catalogue.py",
        )
    ) + (ROOT / "vcl_plugin/worker.py").read_text(encoding="utf-8")
    codes = set(
        re.findall(r"""(?:code=|reason": |reason = |else |yield \(\n\s+)["'](\w+)["']""", source)
    )
    codes |= {"not_registered", "empty_index", "references_unreadable", "other_localizer"}
    assert len(codes) > 8
    assert {code for code in codes if f"`{code}`" not in CODES} == set()


def test_messages_are_json_and_nothing_else_is_accepted(celery_app: Celery):
    assert celery_app.conf.accept_content == ["json"]
    assert celery_app.conf.task_serializer == "json"
    assert celery_app.conf.result_backend is None


def test_a_child_may_take_its_time_to_load(celery_app: Celery):
    """Celery kills a child that is silent for four seconds after its fork; models take longer."""
    assert celery_app.conf.worker_proc_alive_timeout >= 60


@pytest.mark.usefixtures("site_environment")
def test_what_the_broker_does_not_take_waits_for_the_next_sweep(
    db: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with transaction(db) as connection:
        plant_videos(connection, "q")
        for name in ("first", "second", "third"):
            searches.create_search(connection, "q", name)
    sent: list[str] = []

    def send_task(name: str, kwargs: dict) -> None:
        if kwargs["search_id"] != "first":
            raise OperationalError("connection refused")
        sent.append(name)

    monkeypatch.setattr(tasks.app, "send_task", send_task)
    tasks.send([Message(SEARCH, {"search_id": name}) for name in ("first", "second", "third")])
    assert sent == [SEARCH]
    assert "the broker does not answer" in caplog.text
    with transaction(db) as connection:
        states = [read_row(connection, "searches", name) for name in ("first", "second", "third")]
    assert [row.sent_at is None for row in states] == [False, True, True]


@pytest.mark.usefixtures("site_environment")
def test_work_that_no_row_stands_for_is_not_said_to_be_written_down(
    db: Engine, monkeypatch: pytest.MonkeyPatch
):
    def refuse(name: str, **_: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(tasks.app, "send_task", refuse)
    with pytest.raises(ServiceUnavailable, match=r"ask again for retrieval\.rescan.*'r'"):
        tasks.send([Message(RESCAN, {"reference_id": "r"})])
    with pytest.raises(ServiceUnavailable, match=r"ask again for vcl_plugin\.localize.*'q'"):
        tasks.send([Message(LOCALIZE, {"query_id": "q", "reference_ids": []})])


def test_a_broker_that_is_down_is_told_within_seconds():
    """As a command line's process would be; the time limit is the test's patience."""
    code = (
        "from retrieval.tasks import app\n"
        "from retrieval.tasks import BROKER_ERRORS\n"
        "try: app.send_task('retrieval.sweep')\n"
        "except BROKER_ERRORS as error: print('away', error)\n"
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "VCL_BROKER_URL": "redis://127.0.0.1:1/0",
        "VCL_DATABASE_URL": "postgresql://vcl@127.0.0.1:1/vcl",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("away"), done.stderr


@pytest.mark.usefixtures("site_environment")
def test_a_registered_array_is_a_ready_video_and_a_reference_if_asked(db: Engine, tmp_path: Path):
    np.save(tmp_path / "a.npy", unit_rows(9))
    path = str(tmp_path / "a.npy")
    tasks.register(42, path, "isc-1", title="A film", is_reference=True)
    tasks.register(42, path, "isc-1", title="A film", is_reference=True)
    with transaction(db) as connection:
        video = catalogue.read_video(connection, "42")
        changes = read_changes(connection, "references", "isc-1", since=0)
    assert (video.status, video.duration, video.title) == ("ready", 9.0, "A film")
    assert video.is_reference
    assert {(each.action, each.video_id, each.path) for each in changes} == {("add", "42", path)}


@pytest.fixture
def coarse_engine(
    site_environment: None, monkeypatch: pytest.MonkeyPatch
) -> tuple[RetrievalEngine, list[str]]:
    """This process's engine, which looks into old uploads, and the tasks that it sent."""
    monkeypatch.setenv("VCL_RESCAN_NEW", "true")
    engine = process_engine()
    engine.__dict__["descriptor"] = CoarseDescriptor()
    sent: list[str] = []
    monkeypatch.setattr(tasks.app, "send_task", lambda name, **_: sent.append(name))
    return engine, sent


@pytest.mark.usefixtures("site_environment")
def test_each_upload_that_a_foreign_engine_tells_of_is_written_once_and_settled(
    db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    np.save(tmp_path / "a.npy", unit_rows(5))
    sent: list[Message] = []
    monkeypatch.setattr(tasks, "send", sent.extend)
    told = {"uploader": "bo", "external_id": 7, "url": "https://x.org/7", "uploaded_at": "20260301"}
    for again in ({}, told, told, {"uploader": "cy"}):
        tasks.register("v", str(tmp_path / "a.npy"), "isc-1", **again)
    settle = Message(LOCALIZE, {"query_id": "v", "reference_ids": []})
    assert sent == [settle] * 3
    with transaction(db) as connection:
        rows = connection.exec_driver_sql(
            "SELECT uploader, external_id, url, uploaded_at::text FROM uploads ORDER BY id"
        ).all()
    assert [tuple(row) for row in rows] == [
        ("bo", "7", "https://x.org/7", "2026-03-01 00:00:00+00"),
        ("cy", None, None, None),
    ]
    tasks.register("w", str(tmp_path / "a.npy"), "isc-1", uploaded_at="yesterday")
    with transaction(db) as connection:
        assert read_row(connection, "videos", "w").reason == "bad_arguments"


def test_a_reference_that_a_foreign_engine_registers_is_welcomed_once(
    coarse_engine: tuple[RetrievalEngine, list[str]], tmp_path: Path
):
    engine, sent = coarse_engine
    np.save(tmp_path / "a.npy", unit_rows(9))
    path, ours = str(tmp_path / "a.npy"), engine.descriptor.fingerprint.key
    tasks.register("upload", path, ours)
    tasks.register("of another kind", path, "isc-1", is_reference=True)
    assert sent == []
    tasks.register("film", path, ours, is_reference=True)
    assert sent == [RESCAN, SEARCH]
    tasks.ingest("film")
    assert sent == [RESCAN, SEARCH]


def test_an_upload_that_becomes_a_reference_is_welcomed_though_it_was_searched(
    coarse_engine: tuple[RetrievalEngine, list[str]], tmp_path: Path
):
    engine, sent = coarse_engine
    np.save(tmp_path / "a.npy", unit_rows(9))
    tasks.register("film", str(tmp_path / "a.npy"), engine.descriptor.fingerprint.key)
    with transaction(engine.database) as connection:
        searches.create_search(connection, "film")
    with transaction(engine.database) as connection:
        catalogue.make_reference(connection, "film")
    tasks.ingest("film")
    assert sent == [RESCAN, SEARCH]


def test_a_rescan_that_the_broker_did_not_take_is_sent_by_the_next_attempt(
    coarse_engine: tuple[RetrievalEngine, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    engine, sent = coarse_engine
    np.save(tmp_path / "a.npy", unit_rows(9))
    tasks.register("film", str(tmp_path / "a.npy"), engine.descriptor.fingerprint.key)
    with transaction(engine.database) as connection:
        catalogue.make_reference(connection, "film")

    def refuse_rescan(name: str, **_: object) -> None:
        if name == RESCAN:
            raise OperationalError("connection refused")
        sent.append(name)

    with monkeypatch.context() as patch:
        patch.setattr(tasks.app, "send_task", refuse_rescan)
        with pytest.raises(ServiceUnavailable):
            tasks.ingest("film")
    tasks.ingest("film")
    assert sent == [RESCAN, SEARCH]


def ingest_file(engine: RetrievalEngine, path: Path, owner: str | None = None) -> str:
    """What `vcl ingest` does with a file before it waits."""
    failures: list[dict[str, Any]] = []
    [video_id] = _register(engine, path, owner, None, failures)
    assert failures == []
    return video_id


def test_a_folder_ingested_again_asks_for_what_is_left_to_do_and_nothing_else(
    coarse_engine: tuple[RetrievalEngine, list[str]], tmp_path: Path
):
    engine, sent = coarse_engine
    path = render_reference(tmp_path / "film.mp4", seed=1, seconds=2, size=(64, 48))
    video_id = ingest_file(engine, path)
    assert sent == [INGEST]
    engine.ingest(video_id)
    assert ingest_file(engine, path) == video_id
    assert sent == [INGEST], "it is described"
    ingest_file(engine, path, owner="Ana")
    assert sent == [INGEST] * 2, "a new reference is to be compared with the others"
    other = CoarseDescriptor()
    other.fingerprint = Fingerprint("coarse", "none", 256, 1.0, "another")
    engine.__dict__["descriptor"] = other
    ingest_file(engine, path, owner="Ana")
    assert sent == [INGEST] * 3, "another descriptor has not seen it"
    assert engine.ingest(video_id).status == "ready"
    ingest_file(engine, path, owner="Ana")
    assert sent == [INGEST] * 3


def test_redescribing_asks_for_what_only_other_weights_described_references_first(
    coarse_engine: tuple[RetrievalEngine, list[str]], tmp_path: Path
):
    engine, sent = coarse_engine
    upload, film = (
        ingest_file(
            engine, render_reference(tmp_path / f"{seed}.mp4", seed, 2, size=(64, 48)), owner
        )
        for seed, owner in ((1, None), (2, "Ana"))
    )
    for video_id in (upload, film):
        engine.ingest(video_id)
    sent.clear()
    assert _send_outdated(engine) == []
    engine.__dict__["descriptor"] = OtherDescriptor()
    with transaction(engine.database) as connection:  # as when its attempts were used up before
        connection.execute(text("UPDATE videos SET status = 'failed', reason = 'unreadable'"))
        assert outdated.count_references(connection, engine.descriptor.fingerprint.key) == 1
    assert _send_outdated(engine) == [film, upload]
    assert sent == [INGEST] * 2
    for video_id in (upload, film):
        assert engine.ingest(video_id).status == "ready"
    assert _send_outdated(engine) == []


def test_a_file_that_failed_is_tried_again_by_the_next_ingest_of_its_folder(
    coarse_engine: tuple[RetrievalEngine, list[str]], tmp_path: Path
):
    engine, sent = coarse_engine
    path = tmp_path / "film.mp4"
    path.write_text("just words")
    video_id = ingest_file(engine, path)
    assert engine.ingest(video_id).status == "failed"
    assert ingest_file(engine, path) == video_id
    assert sent == [INGEST] * 2
    with transaction(engine.database) as connection:
        assert catalogue.read_video(connection, video_id).status == "waiting"


def test_a_file_replaced_by_an_older_one_is_another_video(
    coarse_engine: tuple[RetrievalEngine, list[str]], tmp_path: Path
):
    engine, _ = coarse_engine
    path, older = tmp_path / "film.mp4", tmp_path / "older.mp4"
    path.write_text("one film")
    older.write_text("an older film")
    os.utime(older, (1e9, 1e9))
    first = ingest_file(engine, path)
    time.sleep(0.05)  # clocks of files tick slowly
    older.replace(path)
    assert ingest_file(engine, path) != first


@pytest.mark.parametrize(
    ("descriptors", "fingerprint", "reason"),
    [
        ("relative.npy", "isc-1", "not_found"),
        ("/nowhere/a.npy", "isc-1", "not_found"),
        ("https://host/a.npy", "isc-1", "not_found"),
        ("/nowhere/a.npy", "", "fingerprint_mismatch"),
    ],
)
@pytest.mark.usefixtures("site_environment")
def test_a_refused_registration_is_a_failed_row_with_the_reason(
    db: Engine, descriptors: str, fingerprint: str, reason: str
):
    tasks.register("v", descriptors, fingerprint)
    with transaction(db) as connection:
        video = catalogue.read_video(connection, "v")
    assert (video.status, video.reason) == ("failed", reason)


@pytest.mark.usefixtures("site_environment")
def test_a_store_file_of_another_fingerprint_is_refused(db: Engine, tmp_path: Path):
    engine = process_engine()
    key = engine.store.write("v", "lite0-1", unit_rows(4))
    tasks.register("v", str(engine.store.find(key)), "isc-1")
    with transaction(db) as connection:
        assert catalogue.read_video(connection, "v").reason == "fingerprint_mismatch"


@pytest.mark.usefixtures("site_environment")
def test_a_sweep_finds_what_was_lost_and_sends_it(db: Engine, monkeypatch: pytest.MonkeyPatch):
    with transaction(db) as connection:
        plant_videos(connection, "q")
        searches.create_search(connection, "q", "s")
        connection.exec_driver_sql("UPDATE searches SET sent_at = NULL")
    sent: list[Message] = []
    monkeypatch.setattr(tasks, "send", sent.extend)
    tasks.sweep()
    assert sent == [Message(SEARCH, {"search_id": "s"})]


@pytest.mark.usefixtures("site_environment")
def test_a_sweep_without_a_broker_is_put_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def away(task: str) -> int:
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(tasks, "_count_messages", away)
    tasks.sweep()
    assert "sweep put off: nobody there" in caplog.text


@pytest.mark.usefixtures("site_environment")
def test_a_sweep_that_the_database_refuses_is_put_off_in_one_line(
    db: Engine, caplog: pytest.LogCaptureFixture
):
    with transaction(db) as connection:
        connection.exec_driver_sql("DROP TABLE searches CASCADE")
    tasks.sweep()
    [line] = [each for each in caplog.messages if each.startswith("sweep put off")]
    assert '"searches" does not exist' in line
    assert "\n" not in line


@pytest.fixture
def supervisor(site_environment: None) -> Iterator[Supervisor]:
    """One that looks after a worker which does nothing."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
    handlers = [signal.getsignal(each) for each in numbers]
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    supervisor = Supervisor(command, ["search"], 1, load_settings())
    yield supervisor
    supervisor.child.kill()
    supervisor.child.wait()
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def test_the_supervisor_outlives_what_the_database_refuses(
    supervisor: Supervisor, db: Engine, caplog: pytest.LogCaptureFixture
):
    with transaction(db) as connection:
        connection.exec_driver_sql("DROP TABLE index_changes CASCADE")
    supervisor._look_after()
    assert "the worker goes on and tries again" in caplog.text
    assert supervisor.child.poll() is None


def test_a_worker_on_a_newer_schema_ends_non_zero_instead_of_eating_messages(
    supervisor: Supervisor, db: Engine, caplog: pytest.LogCaptureFixture
):
    wait_gently = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0));"
    begin_anew(supervisor, [sys.executable, "-c", f"{wait_gently} time.sleep(600)"])
    with transaction(db) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    assert supervisor.run() != 0
    assert "9999, which this version does not know" in caplog.text


@pytest.mark.parametrize("times", [1, worker.FAILURES])
def test_a_worker_that_failed_while_something_was_away_is_started_anew(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
):
    monkeypatch.setattr(worker, "PAUSE", 0.0)
    begin_anew(supervisor, fail_until(tmp_path / "starts", times))
    assert supervisor.run() == 0
    assert (tmp_path / "starts").stat().st_size == times + 1


def test_a_worker_that_fails_again_and_again_ends_its_supervisor(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker, "PAUSE", 0.0)
    begin_anew(supervisor, fail_until(tmp_path / "starts", 100))
    assert supervisor.run() == 3
    assert (tmp_path / "starts").stat().st_size == worker.FAILURES + 1


def fail_until(starts: Path, times: int) -> list[str]:
    """A worker that fails with code 3 so many times; then it ends as one that was asked to."""
    code = (
        f"import sys; from pathlib import Path; starts = Path({str(starts)!r})\n"
        "with starts.open('a') as file: file.write('.')\n"
        f"sys.exit(3 if starts.stat().st_size <= {times} else 0)"
    )
    return [sys.executable, "-c", code]


def begin_anew(supervisor: Supervisor, command: list[str]) -> None:
    supervisor.child.kill()
    supervisor.child.wait()
    supervisor.command = command
    supervisor.child = supervisor._start()


@pytest.mark.usefixtures("site_environment")
def test_a_database_that_falls_while_a_worker_starts_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    answers = iter([ServiceUnavailable("the server closed the connection"), None])

    def check(database: Engine) -> None:
        if answer := next(answers):
            raise answer

    started = []
    monkeypatch.setattr(worker, "check_schema", check)
    monkeypatch.setattr(worker.Supervisor, "__init__", lambda self, *_: started.append(self))
    monkeypatch.setattr(worker.Supervisor, "run", lambda self: 0)
    with pytest.raises(SystemExit) as ended:
        worker.worker(log_level="info")
    assert (ended.value.code, len(started)) == (0, 1)
    assert "the server closed the connection; asked again" in caplog.text


def test_the_engine_s_messages_are_tasks_that_exist(celery_app: Celery):
    assert {INGEST, SEARCH, LOCALIZE} <= set(registered(celery_app))
