"""Media over HTTP: films by range, previews of what browsers cannot play, thumbnails, maps."""

from __future__ import annotations

import io
import time
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from sqlalchemy import Connection, text

from retrieval.database import transaction
from retrieval.media.video import hash_file, probe_video
from retrieval.work import catalogue
from tests.vcl_plugin import world
from tests.vcl_plugin.web.conftest import Desk
from vcl_plugin.demo.footage import render_reference

MEDIA = "/api/v1/media"


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("media-films")
    for seed, name in enumerate(("upload.mp4", "reference.mkv"), start=3):
        render_reference(folder / name, seed=seed, seconds=6, size=(160, 90))
    return folder


@pytest.fixture
def filmed(desk: Desk, films: Path) -> Desk:
    """The upload `ten` and the reference `harbour` of Northlight with files and descriptors."""
    with transaction(desk.engine.database) as connection:
        for name, file in (("ten", "upload.mp4"), ("harbour", "reference.mkv")):
            _give_file(connection, name, films / file)
            path = desk.engine.store.write(
                name, world.METHOD.fingerprint, np.eye(6, 256, dtype=np.float32)
            )
            catalogue.record_descriptors(
                connection, name, world.METHOD.fingerprint, str(path), 6, 256
            )
    return desk


def _give_file(connection: Connection, name: str, path: Path) -> None:
    connection.execute(
        text("UPDATE videos SET path = :path, content_hash = :hash, duration = 6 WHERE id = :id"),
        {"id": name, "path": str(path), "hash": hash_file(path)},
    )


def test_a_film_is_sent_by_range_as_it_is(filmed: Desk, films: Path) -> None:
    me = {**filmed.as_("reader"), "Range": "bytes=100-199"}
    answer = filmed.client.get(f"{MEDIA}/film", params={"video": "ten"}, headers=me)
    assert (answer.status_code, answer.headers["content-type"]) == (206, "video/mp4")
    assert answer.headers["x-film"] == "original"
    assert answer.content == (films / "upload.mp4").read_bytes()[100:200]


def test_what_browsers_cannot_play_gets_a_preview_once(filmed: Desk, tmp_path: Path) -> None:
    me = filmed.as_("reader")
    first = filmed.client.get(f"{MEDIA}/film", params={"video": "harbour"}, headers=me)
    assert (first.status_code, first.json()["code"]) == (503, "preview_pending")
    deadline = time.monotonic() + 120
    while True:
        state = filmed.client.get(f"{MEDIA}/preview", params={"video": "harbour"}, headers=me)
        if state.json()["state"] == "ready":
            break
        assert state.json()["state"] == "making", state.text
        assert time.monotonic() < deadline
        time.sleep(0.1)
    answer = filmed.client.get(f"{MEDIA}/film", params={"video": "harbour"}, headers=me)
    assert (answer.status_code, answer.headers["x-film"]) == (200, "preview")
    path = tmp_path / "preview.mp4"
    path.write_bytes(answer.content)
    info = probe_video(path)
    assert (info.codec, info.width, info.height) == ("h264", 160, 90)
    with av.open(str(path)) as container:
        assert sum(1 for _ in container.decode(video=0)) == pytest.approx(60, abs=2)


def test_a_thumbnail_shows_that_second(filmed: Desk, films: Path) -> None:
    params = {"video": "ten", "second": 4.2, "beside": [1.0, 4.2]}
    answer = filmed.client.get(
        f"{MEDIA}/thumbnail", params=params, headers=filmed.as_("reviewer of Northlight")
    )
    assert answer.headers["content-type"] == "image/jpeg"
    shown = np.asarray(Image.open(io.BytesIO(answer.content)).convert("RGB"), float)
    assert shown.shape == (90, 160, 3)
    with av.open(str(films / "upload.mp4")) as container:
        frames = [
            (frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)
        ]
    differences = [np.abs(shown - frame).mean() for _, frame in frames]
    assert frames[int(np.argmin(differences))][0] == pytest.approx(4.2, abs=0.11)


def test_the_map_of_a_pair_comes_as_picture_and_as_numbers(filmed: Desk) -> None:
    me, pair = filmed.as_("reader"), {"query": "ten", "reference": "harbour"}
    picture = filmed.client.get(f"{MEDIA}/map.png", params=pair, headers=me)
    assert Image.open(io.BytesIO(picture.content)).size == (6, 6)
    numbers = filmed.client.get(f"{MEDIA}/map.json", params=pair, headers=me).json()
    assert (numbers["rows"], numbers["columns"], numbers["step"]) == (6, 6, 1)
    assert numbers["values"] == np.eye(6).tolist()


def test_media_of_others_are_not_there(filmed: Desk) -> None:
    stranger = filmed.as_("reviewer of Ostrava")
    for path, params in (
        ("film", {"video": "ten"}),
        ("preview", {"video": "harbour"}),
        ("thumbnail", {"video": "ten"}),
        ("map.png", {"query": "ten", "reference": "harbour"}),
        ("map.json", {"query": "forty", "reference": "harbour"}),
    ):
        answer = filmed.client.get(f"{MEDIA}/{path}", params=params, headers=stranger)
        assert answer.status_code == 404, path
    none = filmed.client.get(f"{MEDIA}/film", params={"video": "nobody"}, headers=stranger)
    theirs = filmed.client.get(f"{MEDIA}/film", params={"video": "ten"}, headers=stranger)
    assert theirs.text.replace("ten", "nobody") == none.text


def test_a_path_is_no_video(filmed: Desk, films: Path) -> None:
    for path in (str(films / "upload.mp4"), "../../etc/passwd", "file:///etc/passwd"):
        answer = filmed.client.get(
            f"{MEDIA}/film", params={"video": path}, headers=filmed.as_("manager")
        )
        assert answer.status_code == 404


def test_a_file_that_was_replaced_is_not_sent(filmed: Desk, films: Path, tmp_path: Path) -> None:
    copy = tmp_path / "film.mp4"
    copy.write_bytes((films / "upload.mp4").read_bytes())
    with transaction(filmed.engine.database) as connection:
        connection.execute(
            text("UPDATE videos SET path = :path WHERE id = 'ten'"), {"path": str(copy)}
        )
    me, params = filmed.as_("reader"), {"video": "ten"}
    assert filmed.client.get(f"{MEDIA}/film", params=params, headers=me).status_code == 200
    copy.write_bytes((films / "reference.mkv").read_bytes())
    answer = filmed.client.get(f"{MEDIA}/film", params=params, headers=me)
    assert (answer.status_code, answer.json()["code"]) == (422, "changed")
