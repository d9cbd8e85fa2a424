"""Every command: help for all it takes, results on stdout, complaints on stderr, exit codes."""

from __future__ import annotations

import ast
import json
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from sqlalchemy import text

from retrieval.database import connect, migrate, transaction
from retrieval.records import Candidate
from retrieval.work import pairs
from tests.retrieval.planted_rows import set_aside
from tests.vcl_plugin.cli.conftest import Said
from tests.vcl_plugin.localize.test_localizer import planted
from tests.vcl_plugin.world import METHOD, add_reference, add_upload, record, segment
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.cli import app, commands


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The leaves of the tree of commands."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from walk(each, (*path, name))


TOP = {name: commands.load_command(name) for name in commands.COMMANDS}
COMMANDS = {path: leaf for name, each in TOP.items() for path, leaf in walk(each, (name,))}


def test_the_commands_of_the_contract_exist():
    wanted = """up down status config migrate worker search localize report demo
                asset.add asset.list reference.add reference.list reference.remove index.build
                index.info claims.list claims.show claims.confirm claims.dispute claims.release"""
    assert {tuple(each.split(".")) for each in wanted.split()} <= set(COMMANDS)


def work_badly(database: str) -> None:
    """A worker that sets the only pair of the only search aside."""
    engine = connect(database)
    while True:
        with transaction(engine) as connection:
            found = connection.execute(text("SELECT id, query_id FROM searches")).first()
            if found is not None:
                add_reference(connection, "film", "Northlight")
                candidate = Candidate(found.query_id, "film", 1, 0.5)
                pairs.open_pairs(connection, found.id, [candidate], METHOD)
                [pair] = connection.execute(text("SELECT id FROM pairs")).scalars()
                set_aside(connection, pair, "no_frames", "nothing to compare")
                return
        time.sleep(0.05)


@pytest.mark.usefixtures("site_environment")
def test_an_upload_of_which_a_pair_was_not_compared_gets_no_clean_bill(
    vcl: Callable[..., Said], database: str, tmp_path: Path
):
    (tmp_path / "upload.mp4").write_bytes(b"never decoded")
    worker = threading.Thread(target=work_badly, args=[database])
    worker.start()
    said = vcl("search", tmp_path / "upload.mp4", "--wait", "--timeout", "60")
    worker.join()
    assert said.code == 1
    assert "'film' was not compared: nothing to compare (no_frames)" in said.err
    assert "1 of 1 candidates were not compared, so 'upload.mp4' may hold copies" in said.err
    assert "in 0 candidates" in said.out + said.err
    [search] = re.findall(r"vcl retry --search ([\w-]+)", said.err)
    assert json.loads(vcl("status", "--json").out)["counts"]["searches_incomplete"] == 1
    assert "nothing was given up" in vcl("retry", "--reason", "not_finite").err
    assert vcl("retry", "--search", "nobody").code == 1
    assert "1 pairs are compared again" in vcl("retry", "--search", search).out
    assert json.loads(vcl("retry", "--json").out) == {"pairs": 0, "searches_planned_again": 0}
    assert json.loads(vcl("status", "--json").out)["counts"]["searches_open"] == 1


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_everything_it_takes_has_help(path: tuple[str, ...]):
    command = COMMANDS[path]
    assert command.help, f"vcl {' '.join(path)} does not say what it does"
    for parameter in command.params:
        if parameter.name != "help":
            assert getattr(parameter, "help", None), f"{parameter.name} of {path} has no help"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_can_be_printed(vcl: Callable[..., Said], path: tuple[str, ...]):
    said = vcl(*path, "--help")
    assert (said.code, said.err) == (0, "")
    assert "Usage" in said.out


def test_the_help_page_lists_every_command_with_the_help_it_has_itself():
    listed = typer.main.get_command(app).commands
    assert {name: each.help for name, each in listed.items()} == {
        name: each.help for name, each in TOP.items()
    }


@pytest.mark.parametrize("arguments", [("--help",), (), ("nonsense",)], ids=str)
def test_the_help_page_imports_nothing_that_it_does_not_need(arguments: tuple[str, ...]):
    program = (
        "import sys\n"
        "from vcl_plugin.cli import main\n"
        f"sys.argv = ['vcl', *{arguments!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([each for each in sys.modules if '.' not in each])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = set(ast.literal_eval(said.stdout.splitlines()[-1]))
    assert "typer" in imported
    heavy = {"sqlalchemy", "alembic", "numpy", "torch", "celery", "redis", "jinja2", "av", "faiss"}
    assert imported & heavy == set()


def test_the_help_page_costs_less_than_half_a_second_of_processor_time():
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    subprocess.run(
        [sys.executable, "-m", "vcl_plugin.cli", "--help"], check=True, stdout=subprocess.DEVNULL
    )
    assert spent() - before < 0.5


LISTS = [
    ("asset", "list"),
    ("reference", "list"),
    ("claims", "list"),
    ("report", "infringing_segments"),
    ("report", "claims_daily"),
    ("config",),
    ("report",),
]


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("arguments", LISTS, ids=" ".join)
def test_an_empty_site_answers_with_an_empty_list_in_json_and_a_word_on_stderr_else(
    vcl: Callable[..., Said], arguments: tuple[str, ...]
):
    said = vcl(*arguments, "--json")
    assert (said.code, said.err) == (0, "")
    rows = json.loads(said.out)
    assert isinstance(rows, list)
    plain = vcl(*arguments)
    assert plain.code == 0
    assert (plain.out == "", plain.err == "") in ((True, False), (False, True))


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("search",),
        ("search", "a.mp4", "--nonsense"),
        ("claims", "show", "seven"),
        ("report", "claims_daily", "--format", "pdf"),
        ("worker", "-c", "0"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_two_on_stderr(
    vcl: Callable[..., Said], arguments: tuple[str, ...]
):
    said = vcl(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("claims", "show", "7"), "not_found"),
        (("claims", "confirm", "7"), "not_found"),
        (("reference", "remove", "nothing"), "not_registered"),
        (("reference", "add", "a.mp4", "--asset", "Unknown"), "not_found"),
        (("asset", "add", " ", "--owner", "Northlight"), "refused"),
        (("report", "nothing"), "not_found"),
        (("search", "/gone.mp4"), "missing"),
        (("localize", "/gone.npy", "/gone.npy"), "not_found"),
        (("localize", "/gone.npy", "/gone.npy", "--method", "magic"), "unknown_plugin"),
        (("localize", "a.npy", "b.npy", "--method", "tn", "--weights", "w"), "unknown_plugin"),
        (("localize", "a.npy", "b.npy", "--method", "tn", "--min-score", "0.5"), "unknown_plugin"),
        (("migrate", "9999"), "schema_outdated"),
    ],
    ids=str,
)
def test_a_failure_is_one_sentence_with_its_code_and_exit_code_one(
    vcl: Callable[..., Said], arguments: tuple[str, ...], code: str
):
    said = vcl(*arguments)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("vcl:")
    assert f"({code})" in said.err


@pytest.mark.usefixtures("site_environment")
def test_localize_shows_weaker_segments_when_asked_to(vcl: Callable[..., Said], tmp_path: Path):
    query, reference = planted(20, 30, 40)
    for name, frames in (("q", query), ("r", reference)):
        np.save(tmp_path / f"{name}.npy", frames.astype(np.float32))
    files = [str(tmp_path / f"{name}.npy") for name in "qr"]
    strict, lenient = (
        json.loads(vcl("localize", *files, "--json", "--min-score", score).out)
        for score in ("0.999", "0.01")
    )
    assert strict == []
    assert lenient
    said = vcl("localize", *files, "--min-score", "0.999")
    assert (said.code, said.out) == (0, "")
    assert "--min-score 0.5 shows weaker ones" in said.err


@pytest.mark.usefixtures("site_environment")
def test_assets_are_added_and_listed(vcl: Callable[..., Said]):
    added = json.loads(vcl("asset", "add", "Harbour", "--owner", "Northlight", "--json").out)
    assert (added["owner"], added["title"]) == ("Northlight", "Harbour")
    assert "Harbour" in vcl("asset", "list").out


@pytest.mark.usefixtures("site_environment")
def test_a_search_that_nobody_waits_for_prints_its_id_and_stays_in_the_database(
    vcl: Callable[..., Said], tmp_path: Path
):
    (tmp_path / "words.mp4").write_text("just words")
    said = vcl("search", tmp_path / "words.mp4", "--json")
    row = json.loads(said.out)
    assert (said.code, row["status"], row["query"]) == (0, "waiting", "words.mp4")
    again = vcl("search", tmp_path / "words.mp4")
    assert len(again.out.strip()) == len(row["search_id"])
    assert again.out.strip() != row["search_id"]


@pytest.mark.usefixtures("site_environment")
def test_waiting_without_a_worker_ends_at_the_timeout_with_the_advice(
    vcl: Callable[..., Said], tmp_path: Path
):
    (tmp_path / "words.mp4").write_text("just words")
    said = vcl("search", tmp_path / "words.mp4", "--wait", "--timeout", "0.1")
    assert (said.code, said.out) == (1, "")
    assert "vcl worker" in said.err
    assert "(timeout)" in said.err


@pytest.mark.usefixtures("site_environment")
def test_a_missing_file_is_told_to_a_program_as_json(vcl: Callable[..., Said]):
    said = vcl("search", "/gone.mp4", "--json")
    assert said.code == 1
    assert json.loads(said.out)["reason"] == "missing"


@pytest.mark.usefixtures("site_environment")
def test_references_of_an_unknown_asset_leave_no_video_behind(
    vcl: Callable[..., Said], tmp_path: Path
):
    (tmp_path / "words.mp4").write_text("just words")
    assert vcl("reference", "add", tmp_path / "words.mp4", "--asset", "Unknown").code == 1
    assert json.loads(vcl("status", "--json").out)["counts"]["videos"] == 0


@pytest.mark.usefixtures("site_environment")
def test_a_claim_is_shown_decided_and_gone_from_the_reports(
    vcl: Callable[..., Said], database: str
):
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Northlight", "Harbour")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 20))
        settle_claims(connection, "upload")
    [claim] = json.loads(vcl("claims", "list", "--json").out)
    assert "Harbour" in vcl("claims", "show", claim["id"]).out
    assert len(json.loads(vcl("report", "infringing_segments", "--json").out)) == 1
    for command, status in (("confirm", "active"), ("dispute", "disputed"), ("uphold", "upheld")):
        said = vcl("claims", command, claim["id"], "--by", "ana", "--json")
        assert json.loads(said.out)["status"] == status, said.err
    assert vcl("claims", "confirm", claim["id"]).code == 1
    assert vcl("claims", "release", claim["id"], "--reason", "authorised").code == 0
    shown = json.loads(vcl("claims", "show", claim["id"], "--json").out)
    assert shown["status"] == "released"
    assert [event["actor"] for event in shown["events"]][1:4] == ["ana"] * 3
    assert json.loads(vcl("report", "infringing_segments", "--json").out) == []


@pytest.mark.usefixtures("site_environment")
def test_status_counts_work_and_says_what_is_wrong(
    vcl: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, database: str
):
    state = json.loads(vcl("status", "--json").out)
    assert state["problem"] is None
    assert state["counts"]["pairs_waiting"] == 0
    migrate(database, "0001")
    said = vcl("status", "--json")
    assert said.code == 1
    assert "`vcl migrate`" in json.loads(said.out)["problem"]
    monkeypatch.setenv("VCL_BROKER_URL", "redis://127.0.0.1:1/0")
    migrate(database)
    state = json.loads(vcl("status", "--json").out)
    assert "broker is not running" in state["problem"]
    assert state["counts"]["videos"] == 0


@pytest.mark.usefixtures("site_environment")
def test_a_schema_behind_names_the_command_that_mends_it(vcl: Callable[..., Said], database: str):
    migrate(database, "0001")
    said = vcl("claims", "list")
    assert said.code == 1
    assert "vcl migrate" in said.err
    assert vcl("migrate").code == 0
    assert vcl("claims", "list").code == 0


@pytest.mark.usefixtures("site_environment")
def test_a_database_that_is_down_is_waited_for_said_so_and_given_up_with_a_sentence(
    vcl: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setenv("VCL_DATABASE_URL", "postgresql://ana:s3cret@127.0.0.1:1/vcl")
    monkeypatch.setenv("VCL_SERVICE_TIMEOUT", "1")
    for command in (("claims", "list"), ("search", "a.mp4"), ("up",), ("migrate",), ("worker",)):
        said = vcl(*command)
        assert (said.code, said.out) == (1, "")
        assert "cannot be reached" in said.err
        assert "s3cret" not in said.err + caplog.text
    assert "waiting for PostgreSQL" in caplog.text
    down = vcl("status", "--json")
    assert down.code == 1
    assert "vcl up" in json.loads(down.out)["problem"]


def test_status_and_down_of_a_home_never_used_start_nothing(
    vcl: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("VCL_HOME", str(tmp_path / "home"))
    said = vcl("status", "--json")
    assert said.code == 1
    assert [each["running"] for each in json.loads(said.out)["services"]] == [False, False]
    assert json.loads(vcl("down", "--json").out) == {"stopped": []}
    assert not (tmp_path / "home" / "services").exists()


def test_a_wrong_variable_is_a_sentence_for_every_command(
    vcl: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VCL_TOPK", "3")
    for command in ("config", "status", "down"):
        said = vcl(command)
        assert said.code == 1
        assert "VCL_TOPK is not a setting" in said.err


def test_config_shows_every_setting_and_no_password(
    vcl: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VCL_DATABASE_URL", "postgresql://ana:s3cret@db/vcl")
    said = vcl("config", "--json")
    rows: list[dict[str, Any]] = json.loads(said.out)
    assert {row["setting"] for row in rows} >= {"home", "top_k", "localizer"}
    assert "s3cret" not in said.out
    assert "s3cret" not in vcl("config").out
