"""A page of evidence shows what was compared, and nothing that came in its place since."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from retrieval.database import connect, transaction
from retrieval.errors import BadVideo
from retrieval.media.video import hash_file
from retrieval.process import forget_process, process_engine
from retrieval.settings import Settings
from retrieval.work import catalogue
from tests.vcl_plugin.cli.conftest import Said, vcl  # noqa: F401
from tests.vcl_plugin.world import METHOD, add_reference, add_upload, record, segment
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.demo.footage import render_reference
from vcl_plugin.reports import evidence

pytestmark = pytest.mark.usefixtures("site_environment")
Vcl = Callable[..., Said]


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evidence-films")
    for seed, name in enumerate(("upload", "film", "other")):
        render_reference(folder / f"{name}.mp4", seed=seed, seconds=6, size=(64, 48))
    return folder


@pytest.fixture
def media(database: str, films: Path, tmp_path: Path) -> Path:
    """A folder with the files of `upload` and `film`, of which claim 1 speaks."""
    folder = tmp_path / "media"
    shutil.copytree(films, folder)
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana", "The film")
        add_upload(connection, "upload")
        for name in ("upload", "film"):
            path = folder / f"{name}.mp4"
            connection.execute(
                text("""
                UPDATE videos SET path = :path, content_hash = :hash, duration = 6
                WHERE id = :id"""),
                {"id": name, "path": str(path), "hash": hash_file(path)},
            )
        record(connection, "upload", "film", segment(0, 6))
        settle_claims(connection, "upload")
    return folder


def describe(folder: Path, database: str) -> None:
    """Descriptors as a foreign engine leaves them: plain arrays in a folder of its own."""
    folder.mkdir(exist_ok=True)
    with transaction(connect(database)) as connection:
        for name in ("upload", "film"):
            np.save(folder / f"{name}.npy", np.eye(6, 256, dtype=np.float32))
            catalogue.record_descriptors(
                connection, name, METHOD.fingerprint, str(folder / f"{name}.npy"), 6, 256
            )


def write_page(vcl: Vcl, path: Path) -> str:  # noqa: F811
    said = vcl("claims", "evidence", 1, "-o", path)
    assert said.code == 0, said.err
    return path.read_text(encoding="utf-8")


def test_frames_of_the_files_that_were_compared_are_shown(
    vcl: Vcl,  # noqa: F811
    media: Path,
) -> None:
    page = write_page(vcl, media / "page.html")
    assert page.count("data:image/jpeg") == 2 * evidence.MOMENTS
    assert '<video class="query" src="upload.mp4"' in page


def test_a_file_that_was_replaced_is_not_shown_beside_the_old_hash(
    vcl: Vcl,  # noqa: F811
    media: Path,
) -> None:
    shutil.copy(media / "other.mp4", media / "upload.mp4")
    page = write_page(vcl, media / "page.html")
    assert "data:image/jpeg" not in page
    assert "<video" not in page
    assert "the file of the upload is not the one that was compared" in page


def test_no_transaction_is_open_while_frames_are_decoded(
    vcl: Vcl,  # noqa: F811
    media: Path,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that idles longer than five minutes is ended by the server, and the page with it."""
    idle = []
    decode = evidence.read_frames

    def watch(*arguments: Any, **named: Any) -> Any:
        with transaction(connect(database)) as connection:
            found = connection.execute(
                text("""
                SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND state = 'idle in transaction'""")
            )
            idle.append(found.scalar_one())
        return decode(*arguments, **named)

    monkeypatch.setattr(evidence, "read_frames", watch)
    write_page(vcl, media / "page.html")
    assert idle == [0, 0]


def test_descriptors_outside_the_media_roots_are_not_read_for_evidence(
    vcl: Vcl,  # noqa: F811
    media: Path,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    describe(tmp_path / "secrets", database)
    assert "data:image/png" in write_page(vcl, media / "page.html")
    monkeypatch.setenv("VCL_MEDIA_ROOTS", str(media))
    forget_process()
    assert process_engine().settings.roots
    assert "data:image/png" not in write_page(vcl, media / "page.html")


def test_characters_that_turn_text_round_are_made_visible_on_the_page(
    vcl: Vcl,  # noqa: F811
    media: Path,
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        connection.execute(text("UPDATE videos SET title = 'x' || chr(8238) || 'gpj.exe'"))
        assert connection.execute(text("UPDATE uploads SET uploader = chr(8295)")).rowcount
        connection.execute(text("UPDATE assets SET title = chr(8238) || 'asset'"))
    page = write_page(vcl, media / "page.html")
    assert not set(page) & set("\u202e\u2067")
    assert "x\\u202egpj.exe" in page


@pytest.mark.parametrize("where", ["elsewhere", "."])
def test_a_page_names_no_folder_of_the_machine_it_was_written_on(
    vcl: Vcl,  # noqa: F811
    media: Path,
    tmp_path: Path,
    where: str,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    page = write_page(vcl, tmp_path / where / "page.html")
    assert "file://" not in page
    assert os.fspath(tmp_path) not in page
    assert ("media/upload.mp4" in page) == (where == ".")


def test_a_video_that_is_upload_here_and_reference_there_is_called_by_its_side(
    media: Path, database: str
) -> None:
    (media / "film.mp4").unlink()
    with transaction(connect(database)) as connection:
        film = catalogue.read_video(connection, "film")
    films = evidence.Films(Settings(media_roots=str(media)))
    for side in (evidence.UPLOAD, evidence.REFERENCE):
        with pytest.raises(BadVideo, match=f"file of the {side}"):
            films.open(film, side)
