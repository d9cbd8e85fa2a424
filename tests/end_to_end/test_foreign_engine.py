"""Another engine, which knows of us only what docs/how-to/integrate.md says."""

from __future__ import annotations

import os
import re
import runpy
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.conftest import Site, wait_until
from vcl_plugin.demo.footage import render_reference

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "integrate.md").read_text(encoding="utf-8")
SEGMENTS, SET_ASIDE = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def foreign(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The page's Python example, run as it stands; its names are the foreign engine."""
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    script = tmp_path_factory.mktemp("foreign") / "engine.py"
    script.write_text(code)
    before = dict(os.environ)
    os.environ |= {"BROKER_URL": site.broker.url, "DATABASE_URL": site.database_url}
    try:
        yield runpy.run_path(str(script))
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """A folder that the workers can read, as every account."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return tmp_path


def noise(frames: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((frames, 256))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def save(folder: Path, name: str, rows: np.ndarray) -> str:
    np.save(folder / f"{name}.npy", rows)
    return str(folder / f"{name}.npy")


def test_planted_seconds_come_back_exactly_by_the_engine_s_own_ids(
    foreign: dict[str, Any], arrays: Path
):
    reference, query = noise(120, 1), noise(60, 2)
    query[20:45] = reference[70:95]
    ids = {"upload/№ 7?": query, "film:1": reference, "film:2": noise(90, 3)}
    for number, (video_id, rows) in enumerate(ids.items()):
        path = save(arrays, f"a{number}", rows)
        assert foreign["register"](video_id, path) == ("ready", None, None)
    search = foreign["localize"]("upload/№ 7?", ["film:1", "film:2", "film:1"])
    [segment] = foreign["ask"](SEGMENTS.replace(";", ""), search)
    assert segment[0] == "film:1"
    assert [float(end) for end in segment[1:5]] == [20, 45, 70, 95]
    assert segment[6] is False
    assert foreign["ask"](SET_ASIDE.replace(";", ""), search) == []


def test_a_video_of_another_engine_reaches_a_claim(foreign: dict[str, Any], arrays: Path):
    """Attached after it was compared; the upload is told of, and later a second one."""
    reference, query = noise(60, 21), noise(40, 22)
    query[10:30] = reference[20:40]
    told = {"uploader": "bo", "external_id": "yt-1", "url": "https://x.org/1"}
    files = save(arrays, "work", reference), save(arrays, "copy", query)
    assert foreign["register"]("work:1", files[0])[0] == "ready"
    register = {"video_id": "copy:1", "descriptors": files[1], "fingerprint": "my-descriptor-v3"}
    count = "SELECT count(*) FROM uploads WHERE query_id = 'copy:1' AND uploader = %s"
    for upload in (told, {"uploader": "cy"}):
        foreign["vcl"].send_task("retrieval.register", kwargs=register | upload, queue="ingest")
        wait_until(lambda who=upload["uploader"]: foreign["ask"](count, who) == [(1,)])
    foreign["localize"]("copy:1", ["work:1"])
    claims = """SELECT owner, asset, uploader, external_id, url, infringing_seconds
                FROM infringing_uploads WHERE query_id = 'copy:1' ORDER BY upload_id"""
    assert foreign["ask"](claims) == []
    foreign["attach"]("work:1", "Ana", "The work")
    found = wait_until(lambda: foreign["ask"](claims))
    assert found == [
        ("Ana", "The work", "bo", "yt-1", "https://x.org/1", 20.0),
        ("Ana", "The work", "cy", None, None, 20.0),
    ]
    refused = "SELECT message FROM videos WHERE id = %s AND reason = %s"
    foreign["attach"]("work:1", "Bo", "Another work")
    [(message,)] = wait_until(lambda: foreign["ask"](refused, "work:1", "refused"))
    assert "is a reference of asset" in message
    foreign["attach"]("nobody's", "Bo", "Another work")
    wait_until(lambda: foreign["ask"](refused, "nobody's", "not_registered"))


def test_ids_nobody_registered_end_in_rows_with_the_reason(foreign: dict[str, Any], arrays: Path):
    assert foreign["register"]("known", save(arrays, "known", noise(30, 4)))[0] == "ready"
    ask = foreign["ask"]
    search = foreign["localize"]("known", ["ghost", "known too late"])
    found = ask("SELECT status, pairs_total FROM searches WHERE id = %s", search)
    assert found == [("incomplete", 2)]
    aside = ask(SET_ASIDE.replace(";", ""), search)
    assert [(row[0], row[1]) for row in aside] == [
        ("ghost", "not_registered"),
        ("known too late", "not_registered"),
    ]
    nobody = foreign["localize"]("nobody", ["known"])
    state = ask("SELECT status, reason FROM searches WHERE id = %s", nobody)
    assert state == [("failed", "not_registered")]
    # Registering mends it: the next search has the pair.
    foreign["register"]("ghost", save(arrays, "ghost", noise(30, 5)))
    again = foreign["localize"]("known", ["ghost"])
    assert ask(SET_ASIDE.replace(";", ""), again) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"no array", "not_an_array"), (None, "not_found")],
)
def test_a_bad_descriptor_file_is_told_in_the_row(
    foreign: dict[str, Any], arrays: Path, content: bytes | None, reason: str
):
    if content is not None:
        (arrays / "bad.npy").write_bytes(content)
    status = foreign["register"](f"bad {reason}", str(arrays / "bad.npy"))
    assert status[:2] == ("failed", reason)
    assert "bad.npy" in status[2]


def test_a_search_for_nothing_is_done_at_once(foreign: dict[str, Any], arrays: Path):
    foreign["register"]("lonely", save(arrays, "lonely", noise(30, 6)))
    search = foreign["localize"]("lonely", [])
    rows = foreign["ask"]("SELECT status, pairs_total FROM searches WHERE id = %s", search)
    assert rows == [("done", 0)]


def test_killing_a_worker_s_child_at_work_loses_nothing_and_writes_nothing_twice(
    site: Site, foreign: dict[str, Any], arrays: Path
):
    ask, count = foreign["ask"], 24
    query = noise(900, 7)
    for number in range(count):
        rows = noise(900, 100 + number)
        rows[200 : 230 + number] = query[300 : 330 + number]
        assert foreign["register"](f"kill {number}", save(arrays, f"k{number}", rows))[0] == "ready"
    foreign["register"]("kill query", save(arrays, "kq", query))
    foreign["vcl"].send_task(
        "vcl_plugin.localize",
        kwargs={
            "query_id": "kill query",
            "reference_ids": [f"kill {number}" for number in range(count)],
            "search_id": "killed",
        },
        queue="localize",
    )
    holder = wait_until(
        lambda: ask("SELECT leased_by FROM pairs WHERE status = 'running' LIMIT 1")
    )[0][0]
    os.kill(int(holder.split(":")[1]), signal.SIGKILL)
    status = foreign["wait"]("SELECT status, pairs_total FROM searches WHERE id = 'killed'")
    assert status == ("done", count)
    found = ask(SEGMENTS.replace(";", ""), "killed")
    assert {(row[0], float(row[1]), float(row[2])) for row in found} == {
        (f"kill {number}", 300, 330 + number) for number in range(count)
    }
    assert len(found) == count
    [(lost,)] = ask("SELECT count(*) FROM pairs WHERE query_id = 'kill query' AND attempts > 1")
    assert lost > 0, "the kill came too late to prove anything"


def await_search(foreign: dict[str, Any]) -> None:
    """Until the newest search is at its end. Whether it had references does not matter here."""
    ask = foreign["ask"]
    [(search,)] = ask("SELECT id FROM searches ORDER BY created_at DESC LIMIT 1")
    wait_until(
        lambda: (
            ask("SELECT status FROM searches WHERE id = %s", search)
            in ([("done",)], [("incomplete",)], [("failed",)])
        )
    )


def celery_of(site: Site) -> int:
    assert site.worker is not None
    parent = site.worker.pid
    [celery] = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(celery)


def test_work_asked_for_while_the_broker_is_down_is_done_when_it_is_back(
    site: Site, foreign: dict[str, Any], arrays: Path
):
    path = render_reference(arrays / "late.mp4", seed=31, seconds=3, size=(160, 120))
    site.broker.kill()
    try:
        asked = site.vcl("search", path, "--json")
        assert asked.returncode == 0
        assert "the broker does not answer" in asked.stderr
    finally:
        site.broker.start()
    await_search(foreign)


def test_a_worker_that_stops_taking_work_is_started_anew(
    site: Site, foreign: dict[str, Any], arrays: Path
):
    path = render_reference(arrays / "stalled.mp4", seed=32, seconds=3, size=(160, 120))
    os.kill(celery_of(site), signal.SIGSTOP)
    site.vcl("search", path)
    await_search(foreign)
    assert "it is started anew" in site.worker_log.read_text()


def test_a_worker_killed_outright_is_started_anew(
    site: Site, foreign: dict[str, Any], arrays: Path
):
    path = render_reference(arrays / "killed.mp4", seed=33, seconds=3, size=(160, 120))
    os.kill(celery_of(site), signal.SIGKILL)
    site.vcl("search", path)
    await_search(foreign)
