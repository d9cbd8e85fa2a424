"""A real worker under hostile messages and hostile files: none of them costs another its turn."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import kombu
import numpy as np
import pytest
from celery import Celery

from tests.end_to_end.conftest import Site, descendants, site, wait_until
from tests.hostile.boxes import lying_headers
from tests.hostile.films import write_film
from tests.retrieval.test_store import unit_rows

__all__ = ["site"]  # the fixture of the end-to-end tests: one worker, one broker, one database


@pytest.fixture(scope="module")
def sender(site: Site) -> Celery:
    sender = Celery(broker=site.broker.url)
    sender.conf.task_ignore_result = True
    return sender


def worker_processes(site: Site) -> set[int]:
    """Celery's processes of the worker; decoders and sweeps come and go beside them."""
    assert site.worker is not None
    commands = {
        process: Path(f"/proc/{process}/cmdline").read_bytes()
        for process in descendants(site.worker.pid)
        if Path(f"/proc/{process}/cmdline").exists()
    }
    return {process for process, command in commands.items() if b"celery" in command}


def register(sender: Celery, site: Site, video_id: str, path: Path) -> str:
    """Sends an honest registration and waits for what becomes of it."""
    arguments = {"video_id": video_id, "descriptors": str(path), "fingerprint": "isc-1"}
    sender.send_task("retrieval.register", kwargs=arguments, queue="ingest")
    rows = wait_until(lambda: site.sql("SELECT status FROM videos WHERE id = %s", video_id))
    return str(rows[0][0])


def send_raw(site: Site, queue: str, **message: Any) -> None:
    """A message as no Celery would send it."""
    with kombu.Connection(site.broker.url) as connection:
        connection.Producer().publish(routing_key=queue, exchange="", **message)


def test_hostile_messages_end_in_the_log_and_the_worker_goes_on(
    site: Site, sender: Celery, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    np.save(tmp_path / "a.npy", unit_rows(4))
    assert register(sender, site, "before", tmp_path / "a.npy") == "ready"
    before = worker_processes(site)

    mark = tmp_path / "pickle-was-run"
    head = {"lang": "py", "task": "retrieval.ingest", "id": "x", "root_id": "x"}
    pickled = b"cposix\nsystem\n(S'touch %s'\ntR." % str(mark).encode()
    send_raw(
        site,
        "ingest",
        body=pickled,
        headers=head,
        content_type="application/x-python-serialize",
        content_encoding="binary",
    )
    for body in (b"\xff\xfe", b"[", b'"text"', b"[1]", b"[[], {}, {}]", b'[{"a": 1}, [], null]'):
        encoding = {"content_type": "application/json", "content_encoding": "utf-8"}
        send_raw(site, "ingest", body=body, headers=head, **encoding)
        send_raw(site, "ingest", body=body, headers={}, **encoding)
    for headers in ({"task": ["retrieval.ingest"]}, {"task": "retrieval.ingest"}, {"task": None}):
        send_raw(site, "ingest", body=b"[[], {}, {}]", headers=headers, **encoding)
    for spoilt in ({"eta": 5}, {"expires": "x"}, {"timelimit": 1}, {"retries": "x"}, {"id": None}):
        send_raw(site, "ingest", body=b"[[], {}, {}]", headers=head | spoilt, **encoding)
    with kombu.Connection(site.broker.url) as connection:
        redis = connection.default_channel.client
        for entry in (b"no message", b"{}", b"[]", b"\xff", b'{"body": "x", "properties": 5}'):
            redis.lpush("ingest", entry)
    wrong: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("retrieval.ingest", [], {}),
        ("retrieval.ingest", ["a", "b"], {}),
        ("retrieval.ingest", [], {"video_id": None}),
        ("retrieval.ingest", [], {"video_id": "nobody\n\x1b[2J"}),
        ("retrieval.ingest", [], {"video_id": "x" * 10_000}),
        ("retrieval.ingest", [], {"video_id": "a\0b"}),
        ("retrieval.register", [], {"video_id": "half", "descriptors": 5, "fingerprint": None}),
        ("retrieval.register", [], {"video_id": {"a": 1}, "descriptors": "/a", "fingerprint": "x"}),
        ("retrieval.unknown", [], {}),
        ("os.system", ["true"], {}),
    ]
    for task, args, kwargs in wrong:
        sender.send_task(task, args=args, kwargs=kwargs, queue="ingest")
    for reference_ids in (None, 5.5, [None], ["x"] * 100_001, "one"):
        arguments = {"query_id": "q", "reference_ids": reference_ids}
        sender.send_task("vcl_plugin.localize", kwargs=arguments, queue="localize")
    sender.send_task("retrieval.search", kwargs={"search_id": "nobody's"}, queue="search")
    sender.send_task("retrieval.rescan", kwargs={"reference_id": "nobody's"}, queue="search")

    assert register(sender, site, "after", tmp_path / "a.npy") == "ready"
    half = "SELECT status, reason FROM videos WHERE id = 'half'"
    assert wait_until(lambda: site.sql(half)) == [("failed", "bad_arguments")]
    register(sender, site, "half", tmp_path / "a.npy")
    wait_until(lambda: site.sql(half) == [("ready", None)])
    expected = "reference_ids holds 100001 ids"
    wait_until(lambda: expected in site.worker_log.read_text(encoding="utf-8", errors="replace"))
    assert before
    assert before <= worker_processes(site), "a process of the worker died"
    assert not mark.exists(), "a pickle was run"
    log = site.worker_log.read_text(encoding="utf-8", errors="replace")
    assert "video_id has 10000 bytes" in log
    assert "\x1b[2J" not in log


def test_an_order_over_the_broker_to_shut_down_is_not_obeyed(
    site: Site, sender: Celery, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    np.save(tmp_path / "a.npy", unit_rows(4))
    assert register(sender, site, "before the order", tmp_path / "a.npy") == "ready"
    before = worker_processes(site)
    for queue in ("ingest", "search", "localize", "maintenance"):
        sender.control.cancel_consumer(queue)
    sender.control.rate_limit("retrieval.register", "1/h")
    sender.control.time_limit("retrieval.register", hard=0.001)
    sender.control.pool_shrink(2)
    sender.control.revoke("anything", terminate=True)
    sender.control.shutdown()
    answers = sender.control.inspect(timeout=5).active_queues()
    assert {each["name"] for queues in answers.values() for each in queues} == {
        *("ingest", "search", "localize", "maintenance")
    }
    assert register(sender, site, "after the order", tmp_path / "a.npy") == "ready"
    assert before
    assert before <= worker_processes(site), "a process of the worker ended"


class Trap:
    """A file whose opening waits in the kernel, and who fell into it: a lease, held until then."""

    def __init__(self, path: Path) -> None:
        self.caught = 0
        self.before = signal.signal(signal.SIGIO, self._catch)
        self.handle = os.open(path, os.O_RDWR)
        self.set()

    def _catch(self, number: int, frame: object) -> None:
        self.caught += 1

    def set(self) -> None:
        """Again, once those who were caught are gone."""
        self.caught = 0
        with suppress(BlockingIOError):  # there is none yet
            fcntl.fcntl(self.handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        wait_until(self._is_set)

    def _is_set(self) -> bool:
        try:
            fcntl.fcntl(self.handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self.handle)
        signal.signal(signal.SIGIO, self.before)


@pytest.mark.skipif(sys.platform != "linux", reason="leases of files are Linux's")
def test_a_registration_that_kills_its_worker_ends_after_its_attempts(
    site: Site, sender: Celery, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    np.save(tmp_path / "killer.npy", unit_rows(4))
    np.save(tmp_path / "a.npy", unit_rows(4))
    assert register(sender, site, "honest before", tmp_path / "a.npy") == "ready"
    arguments = {
        "video_id": "killer",
        "descriptors": str(tmp_path / "killer.npy"),
        "fingerprint": "isc-1",
    }

    def read_row() -> list[Any]:
        return site.sql("SELECT status, reason FROM videos WHERE id = 'killer'")

    kills = 0
    with closing(Trap(tmp_path / "killer.npy")) as trap:
        sender.send_task("retrieval.register", kwargs=arguments, queue="ingest")
        while kills < 6 and wait_until(lambda: read_row() or trap.caught) != read_row():
            for process in sorted(worker_processes(site))[1:]:  # the first is their parent
                os.kill(process, signal.SIGKILL)
            kills += 1
            trap.set()
    assert read_row() == [("failed", "attempts_exhausted")]
    assert kills == 3
    assert register(sender, site, "honest after", tmp_path / "a.npy") == "ready"
    assert site.sql("SELECT count(*) FROM deliveries") == [(0,)]


def test_hostile_files_fail_with_their_reasons_beside_honest_ones(
    site: Site, tmp_path: Path
) -> None:
    folder = tmp_path / "uploads"
    folder.mkdir()
    before = worker_processes(site)
    honest = write_film(folder / "honest.mp4", "libx264")
    content = honest.read_bytes()
    for name, hostile in [*lying_headers()][::4]:
        (folder / name).write_bytes(hostile)
    (folder / "cut.mp4").write_bytes(content[: len(content) // 2])
    (folder / "empty.mp4").touch()
    (folder / "list.mp4").write_text(f"ffconcat version 1.0\nfile '{honest}'\n")
    (folder / "device.mp4").symlink_to("/dev/zero")
    shutil.copy(honest, folder / "new\nline \u202e'; --.mp4")
    files = len(list(folder.iterdir()))
    told = json.loads(site.vcl("ingest", folder, "--json").stdout)
    assert (told["files"], told["ready"], told["duplicates"]) == (files, 1, 1)
    reasons = {Path(each["file"]).name: each["reason"] for each in told["failures"]}
    assert len(reasons) == files - 2
    assert all(reasons.values())
    assert reasons["cut.mp4"] == "truncated"
    assert reasons["empty.mp4"] == "empty"
    assert reasons["list.mp4"] == "not_video"
    assert reasons["device.mp4"] == "unreadable"
    assert before
    assert before <= worker_processes(site), "a process of the worker died"
