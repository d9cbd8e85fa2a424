"""With media roots set, no path and no link leads out of them, whoever gave it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine

from retrieval import tasks
from retrieval.database import transaction
from retrieval.errors import BadDescriptors, BadSetting, BadVideo
from retrieval.media.roots import confine_path
from retrieval.process import process_engine
from retrieval.settings import load_settings
from retrieval.store import Store
from retrieval.work import catalogue
from tests.retrieval.test_store import unit_rows


@pytest.fixture
def media(tmp_path: Path) -> Path:
    for name in ("media", "media-of-others", "outside"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", unit_rows(3))
        (tmp_path / name / "film.mp4").write_bytes(b"a film")
    return tmp_path / "media"


def links_out(media: Path) -> list[Path]:
    """Every way we know to say a place inside and mean one outside."""
    outside = media.parent / "outside"
    (media / "link").symlink_to(outside)
    (media / "film-link.mp4").symlink_to(outside / "film.mp4")
    (media / "chain").symlink_to(media / "link")
    (media / "loop").symlink_to(media / "loop")
    return [
        outside / "film.mp4",
        media / ".." / "outside" / "film.mp4",
        media / "link" / "film.mp4",
        media / "film-link.mp4",
        media / "chain" / "film.mp4",
        media / "link" / ".." / "outside" / "film.mp4",
        media.parent / "media-of-others" / "film.mp4",  # a prefix of its name is no parent
        media / "loop",
        media / "nul\0.mp4",
        Path("/proc/self/environ"),
        outside / "absent.mp4",  # refused alike: nobody learns what exists
    ]


def test_every_way_out_is_refused(media: Path) -> None:
    for path in links_out(media):
        with pytest.raises(BadVideo) as caught:
            confine_path(path, [media])
        assert caught.value.code == "outside_media_roots", path


def test_what_lies_inside_is_given_by_its_real_name(media: Path, tmp_path: Path) -> None:
    (media / "inner.mp4").symlink_to(media / "film.mp4")
    (tmp_path / "mount").symlink_to(media)
    assert confine_path(media / "inner.mp4", [media]) == (media / "film.mp4").resolve()
    assert confine_path(media / "film.mp4", [tmp_path / "mount"]).exists()
    assert confine_path(media / "absent.mp4", [media]).name == "absent.mp4"


def test_without_roots_every_path_passes_as_it_is(media: Path) -> None:
    for path in links_out(media):
        assert confine_path(path, []) == path


def test_roots_are_absolute_folders_separated_by_colons() -> None:
    settings = load_settings(
        {"VCL_HOME": "/srv/vcl", "VCL_MEDIA_ROOTS": "/srv/media:/mnt/films/: "}
    )
    assert settings.roots[:-1] == (Path("/srv/media"), Path("/mnt/films"))
    assert settings.roots[-1] == Path("/srv/vcl/uploads")  # what came over HTTP
    assert load_settings({}).roots == ()
    with pytest.raises(BadSetting, match="VCL_MEDIA_ROOTS names 'media'"):
        load_settings({"VCL_MEDIA_ROOTS": "media"})


def test_the_store_reads_its_own_files_and_those_in_the_roots(media: Path) -> None:
    outside = media.parent / "outside" / "a.npy"
    store = Store(media.parent / "store", [media])
    own = store.write("v", "lite0-1", unit_rows(3))
    assert store.read(own).frames == store.read(media / "a.npy").frames == 3
    for location in (outside, f"file://{outside}", media / ".." / "outside" / "a.npy"):
        with pytest.raises(BadDescriptors) as caught:
            store.read(location)
        assert caught.value.code == "outside_media_roots"
    assert Store(media.parent / "store").read(outside).frames == 3


@pytest.mark.usefixtures("site_environment")
def test_a_foreign_engine_cannot_register_a_file_outside(
    db: Engine, media: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCL_MEDIA_ROOTS", str(media))
    outside = media.parent / "outside" / "a.npy"
    tasks.register("in", str(media / "a.npy"), "isc-1")
    tasks.register("out", str(outside), "isc-1")
    tasks.register("url", f"file://localhost{outside}", "isc-1")
    with transaction(db) as connection:
        rows = {name: catalogue.read_video(connection, name) for name in ("in", "out", "url")}
    assert rows["in"].status == "ready"
    assert rows["out"].reason == rows["url"].reason == "outside_media_roots"


@pytest.mark.usefixtures("site_environment")
def test_a_file_that_becomes_a_link_to_outside_is_not_described(
    db: Engine, media: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCL_MEDIA_ROOTS", str(media))
    engine = process_engine()
    with pytest.raises(BadVideo, match="media roots"):
        tasks.enqueue_search(media.parent / "outside" / "film.mp4")
    video_id = engine.register(media / "film.mp4")
    (media / "film.mp4").unlink()
    (media / "film.mp4").symlink_to(media.parent / "outside" / "film.mp4")
    video = engine.ingest(video_id)
    assert (video.status, video.reason) == ("failed", "outside_media_roots")
