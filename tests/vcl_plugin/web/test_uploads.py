"""Uploads over HTTP: whole, in parts, by path; what is refused, and what a cut leaves."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from retrieval.database import transaction
from tests.vcl_plugin.web.conftest import Desk
from vcl_plugin.web.incoming import Incoming

UPLOADS = "/api/v1/uploads"
FILM = b"not a film, but bytes all the same " * 40


def send(desk: Desk, content: bytes = FILM, name: str = "service", **fields: str) -> Any:
    return desk.client.post(
        UPLOADS, headers=desk.as_(name), data=fields, files={"file": ("a film.MP4", content)}
    )


def rows(desk: Desk, statement: str) -> list[Any]:
    with transaction(desk.engine.database) as connection:
        return list(connection.execute(text(statement)))


def kept(desk: Desk) -> list[Path]:
    return [path for path in desk.engine.settings.upload_dir.rglob("*") if path.is_file()]


def test_an_upload_is_kept_by_its_content_and_searched(desk: Desk) -> None:
    answer = send(desk, uploader="bo", external_id="yt-1", url="u", uploaded_at="2026-03-01T12:00Z")
    assert answer.status_code == 201, answer.text
    digest = hashlib.sha256(FILM).hexdigest()
    [path] = kept(desk)
    assert path.name == f"{digest}.mp4"
    assert path.read_bytes() == FILM
    [video] = rows(desk, f"SELECT * FROM videos WHERE content_hash = '{digest}'")
    assert (video.title, video.path) == ("a film.MP4", str(path))
    [told] = rows(desk, f"SELECT * FROM uploads WHERE query_id = '{video.id}'")
    assert (told.uploader, told.external_id, told.url) == ("bo", "yt-1", "u")
    search = desk.client.get(
        f"/api/v1/searches/{answer.json()['search_id']}", headers=desk.as_("service")
    ).json()
    assert (search["query_id"], search["asked_by"]) == (video.id, "service")


def test_the_same_film_uploaded_again_is_kept_once(desk: Desk) -> None:
    first, second = send(desk, uploader="bo").json(), send(desk, uploader="al").json()
    assert first["video_id"] == second["video_id"]
    assert len(kept(desk)) == 1
    assert len(rows(desk, f"SELECT * FROM uploads WHERE query_id = '{first['video_id']}'")) == 2


@pytest.mark.parametrize(
    ("content", "fields", "status", "code"),
    [
        (b"", {}, 422, "empty"),
        (FILM, {"uploaded_at": "yesterday"}, 422, "bad_arguments"),
        (FILM, {"colour": "red"}, 422, "bad_arguments"),
        (FILM, {"asset_id": "1"}, 403, "forbidden"),
        (FILM, {"title": "x" * 501}, 422, "bad_arguments"),
        (FILM, {"uploader": "a\0b"}, 422, "bad_value"),
    ],
)
def test_a_bad_upload_is_refused_and_leaves_nothing(
    desk: Desk, content: bytes, fields: dict[str, str], status: int, code: str
) -> None:
    before = len(rows(desk, "SELECT FROM searches"))
    answer = send(desk, content, **fields)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert len(rows(desk, "SELECT FROM searches")) == before
    assert list((desk.engine.settings.upload_dir / "incoming").glob("*")) == []


def test_nobody_without_a_key_sends_a_byte(desk: Desk) -> None:
    assert desk.client.post(UPLOADS, files={"file": ("x", FILM)}).status_code == 401
    assert send(desk, name="reader").status_code == 403
    assert not desk.engine.settings.upload_dir.exists()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"--b\r\nContent-Disposition: form-data; name=file\r\n\r\nhalf of it", "b"),
        (b"nothing of the kind", "b"),
        (b"", "b"),
        (b"--b--", ""),
    ],
)
def test_a_body_that_is_not_whole_is_a_problem(desk: Desk, body: bytes, kind: str) -> None:
    headers = {"Content-Type": f"multipart/form-data; boundary={kind}"}
    answer = desk.client.post(UPLOADS, headers=desk.as_("service") | headers, content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_arguments")
    assert list((desk.engine.settings.upload_dir / "incoming").glob("*")) == []


def test_50_gigabytes_are_refused_by_their_declared_length(desk: Desk) -> None:
    length = {"Content-Length": str(50 * 2**30), "Content-Type": "multipart/form-data; boundary=b"}
    answer = desk.client.post(UPLOADS, headers=desk.as_("service") | length, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    answer = desk.client.post(
        f"{UPLOADS}/sessions", headers=desk.as_("service"), json={"size": 50 * 2**30}
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def begin(desk: Desk, size: int = len(FILM), **facts: Any) -> str:
    answer = desk.client.post(
        f"{UPLOADS}/sessions", headers=desk.as_("service"), json={"size": size, **facts}
    )
    assert answer.status_code == 201, answer.text
    return f"{UPLOADS}/sessions/{answer.json()['id']}"


def append(desk: Desk, place: str, offset: int, content: bytes, name: str = "service") -> Any:
    headers = desk.as_(name) | {"Upload-Offset": str(offset)}
    return desk.client.patch(place, headers=headers, content=content)


def test_an_upload_in_parts_goes_on_where_it_was(desk: Desk) -> None:
    me, place = desk.as_("service"), begin(desk, title="in parts", uploader="bo")
    assert append(desk, place, 0, FILM[:500]).headers["upload-offset"] == "500"
    early = desk.client.post(f"{place}/complete", headers=me)
    assert (early.status_code, early.json()["state"]["offset"]) == (409, 500)
    wrong = append(desk, place, 0, FILM[:500])
    assert (wrong.status_code, wrong.json()["code"]) == (409, "wrong_offset")
    there = desk.client.head(place, headers=me)
    assert (there.headers["upload-offset"], there.headers["upload-length"]) == (
        "500",
        str(len(FILM)),
    )
    assert append(desk, place, 500, FILM[500:]).status_code == 204
    done = desk.client.post(f"{place}/complete", headers=me)
    assert done.status_code == 201, done.text
    assert desk.client.post(f"{place}/complete", headers=me).json() == done.json()
    assert desk.client.get(place, headers=me).json()["accepted"] == done.json()
    [path] = kept(desk)
    assert path.read_bytes() == FILM


def test_more_bytes_than_were_declared_are_refused(desk: Desk) -> None:
    place = begin(desk, size=10)
    answer = append(desk, place, 0, b"x" * 11)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert append(desk, place, 0, b"x" * 10).status_code == 204


def test_an_upload_of_others_answers_as_one_that_is_not_there(desk: Desk) -> None:
    place = begin(desk)
    for method, path in (("GET", ""), ("HEAD", ""), ("DELETE", ""), ("POST", "/complete")):
        me = desk.as_("service of Ostrava")
        theirs = desk.client.request(method, f"{place}{path}", headers=me)
        none = desk.client.request(method, f"{UPLOADS}/sessions/none{path}", headers=me)
        assert (theirs.status_code, theirs.text) == (404, none.text)
    assert append(desk, place, 0, FILM, "service of Ostrava").status_code == 404


def test_an_upload_is_given_up_by_its_sender_or_after_a_day(desk: Desk) -> None:
    files = Incoming(desk.engine.settings.upload_dir)
    first, second = begin(desk), begin(desk)
    assert desk.client.delete(first, headers=desk.as_("service")).status_code == 204
    assert len(kept(desk)) == 1
    with transaction(desk.engine.database) as connection:
        connection.execute(text("UPDATE upload_sessions SET moved_at = now() - interval '2 days'"))
    files.drop_abandoned(desk.engine.database)
    assert desk.client.get(second, headers=desk.as_("service")).status_code == 404


def test_a_path_is_taken_within_the_media_roots_and_nowhere_else(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    media = tmp_path / "media"
    media.mkdir()
    (media / "film.mp4").write_bytes(FILM)
    (tmp_path / "secret.mp4").write_bytes(FILM)

    def take(path: str) -> Any:
        return desk.client.post(f"{UPLOADS}/path", headers=desk.as_("service"), json={"path": path})

    assert take(str(media / "film.mp4")).json()["code"] == "outside_media_roots"
    object.__setattr__(desk.engine.settings, "media_roots", str(media))
    there, nowhere = take(str(tmp_path / "secret.mp4")), take(str(tmp_path / "nothing.mp4"))
    assert there.status_code == nowhere.status_code == 422
    assert there.text.replace("secret", "X") == nowhere.text.replace("nothing", "X")
    uploads = take(str(desk.engine.settings.upload_dir / "x"))
    assert uploads.json()["code"] == "outside_media_roots"
    assert take("https://example.org/film.mp4").json()["code"] == "bad_arguments"
    assert take(str(media / "gone.mp4")).json()["code"] == "missing"
    assert take((media / "film.mp4").as_uri()).status_code == 201


def test_many_uploads_at_once_lose_none(desk: Desk) -> None:
    with ThreadPoolExecutor(20) as pool:
        contents = [FILM + str(number).encode() for number in range(60)]
        answers = list(pool.map(lambda content: send(desk, content), contents))
    assert {each.status_code for each in answers} == {201}
    ids = {each.json()["video_id"] for each in answers}
    assert len(ids) == 60
    assert len(rows(desk, "SELECT FROM searches WHERE asked_by = 'service'")) == 60


def test_an_upload_that_is_sent_again_with_its_key_is_one_search(desk: Desk) -> None:
    headers = desk.as_("service") | {"Idempotency-Key": "one"}
    answers = [
        desk.client.post(UPLOADS, headers=headers, files={"file": ("f", FILM)}) for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert len(rows(desk, "SELECT FROM searches WHERE asked_by = 'service'")) == 1


def test_a_manager_uploads_a_reference_of_an_asset_they_see(desk: Desk) -> None:
    [asset] = rows(desk, "SELECT id FROM assets WHERE title LIKE 'harbour%'")
    theirs = send(desk, name="manager of Ostrava", asset_id=str(asset.id))
    assert (theirs.status_code, theirs.json()["code"]) == (404, "not_found")
    mine = send(desk, name="manager of Northlight", asset_id=str(asset.id)).json()
    assert (mine["asset_id"], mine["search_id"]) == (asset.id, None)
    [held] = rows(desk, f"SELECT * FROM reference_videos WHERE video_id = '{mine['video_id']}'")
    assert held.asset_id == asset.id
