"""Ids, titles and names with any character: kept as they are, or refused in a sentence."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from celery import Celery
from kombu.exceptions import ContentDisallowed
from kombu.serialization import dumps, loads
from sqlalchemy import Engine

from retrieval import tasks
from retrieval.database import connect, transaction
from retrieval.errors import NotFound, Refused, RetrievalError
from retrieval.records import Upload
from retrieval.services.place import find_place
from retrieval.settings import Settings
from retrieval.work import catalogue, searches
from retrieval.work.uploads import note_upload
from tests.retrieval.test_store import unit_rows
from vcl_plugin.claims import assets
from vcl_plugin.cli import main
from vcl_plugin.reports import reports

TEXTS = {
    "quotes": """'"`''; DROP TABLE videos; --""",
    "placeholders": "%s %(id)s :id {0} {title} $1 ?",
    "newlines": "one\ntwo\r\nthree\ttab",
    "turned": "\u202efdp.exe\u202c \u2066x\u2069 \u200f",
    "escapes": "\x1b[2J\x1b]0;owned\x07 \x9b31m \\x00 \\",
    "markup": "<script>alert(1)</script>&amp;<!-- [bold]x[/] -->",
    "path": "../../../etc/passwd",
    "formula": "=HYPERLINK(0,1)",
    "wide": "日本\u3000🎬👩\u200d🚀 é e\u0301",
    "last": "\U0010ffff\ufffe\ufeff",
    "blank": "  \u00a0 x",
}
# No two alike in a row, so that no compression makes it fit an index.
LONG = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10_000))
UNKEEPABLE = {"NUL": "a\0b", "half a character": "a\udc80b"}


@pytest.fixture
def db(database: str) -> Engine:
    return connect(database)


@pytest.fixture
def array(tmp_path: Path) -> str:
    np.save(tmp_path / "a.npy", unit_rows(4))
    return str(tmp_path / "a.npy")


@pytest.mark.usefixtures("site_environment")
def test_ids_and_titles_of_any_characters_come_back_as_they_were(db: Engine, array: str) -> None:
    for text in TEXTS.values():
        tasks.register(text, array, "isc-1", title=text)
        with transaction(db) as connection:
            note_upload(connection, text, Upload(text, text, text))
            searches.create_search(connection, text, text)
            video = catalogue.read_video(connection, text)
            assert searches.read_search(connection, text).query_id == text
            upload = connection.exec_driver_sql(
                "SELECT uploader, external_id, url FROM uploads WHERE query_id = %s", (text,)
            ).one()
        assert (video.id, video.title, *upload) == (text,) * 5
        assert video.status == "ready"
    with transaction(db) as connection:
        assert len(catalogue.read_videos(connection, list(TEXTS.values()))) == len(TEXTS)


@pytest.mark.usefixtures("site_environment")
def test_a_title_of_ten_kilobytes_is_kept_and_such_an_id_refused(
    db: Engine, array: str, caplog: pytest.LogCaptureFixture
) -> None:
    tasks.register("v", array, "isc-1", title=LONG)
    tasks.register(LONG, array, "isc-1")
    with transaction(db) as connection:
        assert catalogue.read_video(connection, "v").title == LONG
        assert connection.exec_driver_sql("SELECT count(*) FROM videos").scalar() == 1
    assert "retrieval.register refused: video_id has 10000 bytes" in caplog.text


@pytest.mark.parametrize("kind", UNKEEPABLE)
@pytest.mark.usefixtures("site_environment")
def test_what_postgresql_cannot_keep_is_refused_in_a_sentence(
    db: Engine, array: str, kind: str, tmp_path: Path
) -> None:
    text = UNKEEPABLE[kind]
    film = tmp_path / "film.mp4"
    film.write_bytes(b"a film")
    attempts: list[Callable[[], object]] = [
        lambda: tasks.enqueue_search(film, title=text),
        lambda: tasks.enqueue_search(film, uploader=text),
        lambda: run(db, lambda connection: assets.add_asset(connection, text, "title")),
        lambda: run(db, lambda connection: assets.add_asset(connection, "owner", text)),
        lambda: run(db, lambda connection: assets.find_asset(connection, text)),
        lambda: run(db, lambda connection: catalogue.read_video(connection, text)),
        lambda: run(db, lambda connection: searches.create_search(connection, text, text)),
        lambda: run(
            db, lambda connection: reports.read_report(connection, "claims_open", owner=text)
        ),
    ]
    for attempt in attempts:
        with pytest.raises(Refused) as caught:
            attempt()
        assert caught.value.code == "bad_value"
        assert str(caught.value).isprintable()
    tasks.register("v", array, "isc-1", title=text)
    tasks.register("w", text, "isc-1")
    tasks.register("x", array, text)
    with transaction(db) as connection:
        for video_id in "vwx":
            video = catalogue.read_video(connection, video_id)
            assert (video.status, video.reason) == ("failed", "bad_arguments")


def run(db: Engine, step: Callable) -> object:
    with transaction(db) as connection:
        return step(connection)


@pytest.mark.usefixtures("site_environment")
def test_names_and_numbers_beyond_all_bounds_are_refused_in_a_sentence(db: Engine) -> None:
    for step in (
        lambda connection: assets.add_asset(connection, "owner", LONG),
        lambda connection: assets.add_asset(connection, LONG, "title"),
    ):
        with pytest.raises(Refused) as caught:
            run(db, step)
        assert caught.value.code == "bad_value"
    with pytest.raises(NotFound, match="no asset 10000"):
        run(db, lambda connection: assets.add_reference(connection, "v", 10**30))


@pytest.mark.usefixtures("site_environment")
def test_the_command_line_shows_hostile_titles_and_is_not_moved_by_them(
    db: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def vcl(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["vcl", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    for name, text in TEXTS.items():
        code, out, err = vcl("asset", "add", text, "--owner", f"owner {name}", "--json")
        assert code == 0, err
        assert json.loads(out)["title"] == text
    code, out, err = vcl("asset", "list", "--json")
    assert {row["title"] for row in json.loads(out)} == set(TEXTS.values())
    code, out, err = vcl("asset", "list")
    assert code == 0
    for acting in "\x1b\x07\x9b\r\u202e\u2066\u200f\ufeff":
        assert acting not in out + err, ascii(acting)
    assert r"\x1b[2J" in out
    assert r"\u202efdp.exe" in out
    code, out, err = vcl("asset", "add", LONG, "--owner", "o")
    assert code == 1
    assert "bad_value" in err
    code, out, err = vcl("search", TEXTS["escapes"])
    assert code == 1
    assert "\x1b[2J" not in err
    assert "no file fits" in err


@pytest.mark.usefixtures("site_environment")
def test_a_file_whose_name_is_no_unicode_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    film = tmp_path / "\udcff\udcfe.mp4"
    film.write_bytes(b"a film")
    with pytest.raises(RetrievalError) as caught:
        tasks.enqueue_search(film)
    assert caught.value.code == "bad_value"


def test_reports_carry_hostile_titles_as_text() -> None:
    report = reports.Report("claims_open", ["asset"], [[text] for text in TEXTS.values()])
    page = reports.write_html(report)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "\u202e" not in page
    assert [row["asset"] for row in json.loads(reports.write_json(report))] == list(TEXTS.values())
    assert "\n'=HYPERLINK" in reports.write_csv(report).replace('"', "")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    "title", ["=1+1", "a;=1+1", "a\t=1+1", "a\n=1+1", "＝1+1", "a;＠SUM(1)", "; =1", 'b";=1']
)
def test_no_cell_of_a_csv_is_a_formula_whatever_ends_a_cell(title: str, delimiter: str) -> None:
    report = reports.Report("claims_open", ["owner", "asset"], [["ana", title]])
    written = io.StringIO(reports.write_csv(report))
    cells = [cell for row in csv.reader(written, delimiter=delimiter) for cell in row]
    assert not [cell for cell in cells if cell.lstrip().startswith(tuple("=+-@＝＋－＠"))]


def test_a_pickle_from_the_broker_is_refused_unread(celery_app: Celery) -> None:
    content_type, encoding, body = dumps({"a": 1}, serializer="pickle")
    with pytest.raises(ContentDisallowed):
        loads(body, content_type, encoding, accept=celery_app.conf.accept_content)
    with celery_app.connection_for_read() as connection:
        consumer = celery_app.amqp.TaskConsumer(connection.default_channel)
        assert consumer.accept == {"application/json"}


def test_the_sockets_of_the_embedded_servers_are_their_user_s_alone(
    settings: Settings, services: object
) -> None:
    place = find_place(settings.home)
    assert place is not None
    assert place.folder.stat().st_mode & 0o777 == 0o700
    assert place.sockets.stat().st_mode & 0o777 == 0o700
    sockets = [path for path in place.sockets.iterdir() if path.is_socket()]
    assert len(sockets) == 2
    assert {path.stat().st_mode & 0o077 for path in sockets} == {0}
