"""Searches on the command line: listed, shown, waited for, cancelled; many videos at once."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import retrieval
from retrieval.database import transaction
from retrieval.errors import NotFound
from retrieval.process import process_database
from retrieval.work import leases, pairs, presence
from tests.retrieval.planted_rows import plant_search
from tests.vcl_plugin import world
from tests.vcl_plugin.cli.conftest import Said
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.cli.films import list_films

Run = Callable[..., Said]


@pytest.fixture
def found(site_environment: None) -> str:
    """A search of `upload` in `harbour` and `tram`: the first is compared, the second waits."""
    with transaction(process_database()) as connection:
        world.add_reference(connection, "harbour", "Northlight")
        world.add_reference(connection, "tram", "Ostrava")
        world.add_upload(connection, "upload")
        search = plant_search(connection, "upload", ["harbour", "tram"], "s")
        leases.acquire(connection, leases.Table.PAIRS, [1], "w", 60)
        world.answer(connection, "upload", "harbour", world.segment(0, 10))
        settle_claims(connection, "upload")
        pairs.finish_pair(connection, 1, "w")
    return search


def finish(pair: int) -> None:
    with transaction(process_database()) as connection:
        leases.acquire(connection, leases.Table.PAIRS, [pair], "w", 60)
        pairs.finish_pair(connection, pair, "w")


def test_searches_are_listed_and_shown_by_id_or_by_their_video(vcl: Run, found: str) -> None:
    [row] = json.loads(vcl("searches", "list", "--video", "upload", "--json").out)
    assert (row["search_id"], row["status"], row["pairs_left"]) == ("s", "localizing", 1)
    assert json.loads(vcl("searches", "list", "--status", "done", "--json").out) == []
    for name in ("s", "upload"):
        shown = json.loads(vcl("searches", "show", name, "--json").out)
        assert [each["asset"] for each in shown["segments"]] == ["harbour the film"]
        assert len(shown["claims"]) == 1
    assert "1 of 2 candidates left" in vcl("searches", "show", "s").out
    nothing = vcl("searches", "show", "nothing")
    assert nothing.code == 1
    assert "no search has the id 'nothing'" in nothing.err
    assert "'nope' is no status" in vcl("searches", "list", "--status", "nope").err


def test_a_cancelled_search_is_so_everywhere_and_keeps_what_it_found(vcl: Run, found: str) -> None:
    said = vcl("searches", "cancel", "upload")
    assert said.out.strip() == "search s is cancelled, 1 of 2 candidates were not compared"
    shown = json.loads(vcl("searches", "show", "s", "--json").out)
    assert (shown["status"], shown["reason"]) == ("cancelled", "cancelled")
    assert len(shown["segments"]) == len(shown["claims"]) == 1
    assert vcl("searches", "wait", "s").code == 1
    assert "search_cancelled" in vcl("why", "upload", "tram", "--json").out
    assert vcl("searches", "cancel", "s").code == 0, "once more is the same"
    status = json.loads(vcl("status", "--json").out)
    assert status["counts"]["searches_open"] == status["counts"]["pairs_waiting"] == 0


def test_a_search_at_its_end_cannot_be_cancelled(vcl: Run, found: str) -> None:
    finish(2)
    said = vcl("searches", "cancel", "s")
    assert said.code == 1
    assert "search s is done and cannot be cancelled" in said.err


def test_searches_are_waited_for_together(vcl: Run, found: str) -> None:
    with transaction(process_database()) as connection:
        world.add_upload(connection, "other")
        plant_search(connection, "other", [], "empty")
    late = threading.Timer(0.5, finish, [2])
    late.start()
    said = vcl("searches", "wait", "s", "empty", "--timeout", 60, "--json")
    late.join()
    assert said.code == 0, said.err
    assert [each["status"] for each in json.loads(said.out)] == ["done", "done"]


def test_waiting_too_long_says_how_many_are_left(vcl: Run, found: str) -> None:
    with transaction(process_database()) as connection:
        plant_search(connection, "upload", ["tram"], "t")
    said = vcl("searches", "wait", "s", "t", "--timeout", 0.1)
    assert said.code == 1
    assert "2 of 2 searches are not at their end" in said.err


def test_many_videos_are_searched_at_once_and_what_is_none_is_left_out(
    vcl: Run, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.mp4", "b.mp4"):
        (folder / name).write_bytes(name.encode())  # read by workers; here they are registered
    empty = tmp_path / "empty.mp4"
    empty.write_bytes(b"")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{empty}\n\n# a remark\n"))
    said = vcl("search", folder, "-", "--json")
    assert said.code == 1, "one of them is no video"
    told = json.loads(said.out)
    assert [each["query"] for each in told["searches"]] == ["a.mp4", "b.mp4"]
    assert [(each["file"], each["reason"]) for each in told["failures"]] == [(str(empty), "empty")]
    refused = vcl("search", folder, "--url", "https://example.com/1")
    assert refused.code == 1
    assert "--url are of one upload" in refused.err


def test_films_are_named_by_files_folders_patterns_and_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.mp4", "a.mkv", "below/c.mov", "notes.pdf", "odd[1].mp4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "list.txt").write_text("b.mp4\n# none\n\nbelow/c.mov\n")
    monkeypatch.chdir(tmp_path)

    def listed(*words: str) -> list[str]:
        return [path.as_posix() for path in list_films(words)]

    assert listed("*.mp4") == ["b.mp4", "odd[1].mp4"]
    assert listed("odd[1].mp4") == ["odd[1].mp4"], "a name that is there is no pattern"
    assert listed("list.txt", "b.mp4") == ["b.mp4", "below/c.mov"], "each once"
    assert [Path(each).name for each in listed(".")] == ["a.mkv", "b.mp4", "c.mov", "odd[1].mp4"]
    assert listed("missing.mp4") == ["missing.mp4"]
    with pytest.raises(NotFound, match=r"no file fits '\*\.webm'"):
        listed("*.webm")


def test_python_waits_for_a_search_and_reads_its_segments(found: str) -> None:
    finish(2)
    assert retrieval.wait_search(found, timeout=10).status == "done"
    [segment] = retrieval.read_segments(found)
    assert (segment["asset"], segment["owner"]) == ("harbour the film", "Northlight")
    assert (segment["query_start"], segment["query_end"]) == (0.0, 10.0)
    with pytest.raises(NotFound):
        retrieval.read_segments("nothing")


def test_status_shows_the_workers_that_are_there(vcl: Run, found: str) -> None:
    assert "no worker runs; start one: vcl worker" in vcl("status").out
    with transaction(process_database()) as connection:
        presence.note_worker(connection, "host:7", ["search", "localize"], 2)
    [worker] = json.loads(vcl("status", "--json").out)["workers"]
    assert (worker["name"], worker["queues"], worker["processes"]) == (
        "host:7",
        ["search", "localize"],
        2,
    )
    assert worker["silent_seconds"] < 60
    with transaction(process_database()) as connection:
        presence.forget_worker(connection, "host:7")
    assert json.loads(vcl("status", "--json").out)["workers"] == []


def test_the_version_is_told(vcl: Run) -> None:
    said = vcl("--version")
    assert said.code == 0
    assert said.out.startswith("vcl ")


def test_commands_of_rows_alone_import_nothing_heavy(vcl: Run, found: str) -> None:
    """What takes half a second and more to import, and a decision does not need."""
    heavy = "numpy torch celery kombu onnxruntime alembic retrieval.engine PIL jinja2"
    for command in ("claims count", "searches list", "key list", "asset list", "webhook list"):
        source = (
            f"import sys\nsys.argv = ['vcl', *{command.split()!r}]\n"
            "from vcl_plugin.cli import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            f"print([each for each in {heavy.split()!r} if each in sys.modules], file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", source], capture_output=True, text=True, check=True
        )
        assert done.stderr.strip().splitlines()[-1] == "[]", command
