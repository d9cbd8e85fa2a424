"""The store is known by its mark: a disk that is away is waited for, and never taken for a loss."""

from __future__ import annotations

import os
import resource
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine, text

from retrieval.database import connect, migrate, transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import MissingFile, ServiceUnavailable
from retrieval.settings import Settings
from retrieval.site.doctor import examine
from retrieval.store import Store, read_descriptors
from tests.retrieval.planted_rows import read_row
from tests.retrieval.test_engine import ask, make_engine, plant_reference, read
from tests.retrieval.test_store import unit_rows
from vcl_plugin.demo.footage import render_reference


@pytest.fixture
def engine(db: Engine, tmp_path: Path) -> RetrievalEngine:
    return make_engine(db, tmp_path / "home", min_candidate_score=-1.0)


@contextmanager
def unmounted(root: Path, leaves_folder: bool) -> Iterator[None]:
    """The store's disk is away, with or without the folder that it was mounted at."""
    aside = root.with_name("aside")
    root.rename(aside)
    if leaves_folder:
        root.mkdir()
    try:
        yield
    finally:
        if leaves_folder:
            root.rmdir()  # fails if anything was written there
        aside.rename(root)


@pytest.mark.parametrize("leaves_folder", [True, False])
def test_nothing_is_written_where_the_disk_of_the_store_should_be_mounted(
    engine: RetrievalEngine, leaves_folder: bool
):
    plant_reference(engine, "a", unit_rows(9, seed=1))
    root = engine.settings.store_dir
    with unmounted(root, leaves_folder):
        with pytest.raises(ServiceUnavailable, match=r"is not the store of this database"):
            engine.store.write("b", "kind", unit_rows(2))
        assert root.exists() == leaves_folder
    engine.store.write("b", "kind", unit_rows(2))


@pytest.mark.parametrize("leaves_folder", [True, False])
def test_a_machine_without_the_store_takes_no_reference_out_of_the_index(
    engine: RetrievalEngine, leaves_folder: bool
):
    plant_reference(engine, "a", unit_rows(9, seed=1))
    engine.refresh_index()
    plant_reference(engine, "b", unit_rows(9, seed=2))
    with unmounted(engine.settings.store_dir, leaves_folder):
        for look in (engine.refresh_index, engine.build_index):
            with pytest.raises(ServiceUnavailable):
                look()
        assert "a" in engine.references.index
    assert "b" in engine.refresh_index()
    assert engine.references.unreadable == {}


def test_a_file_out_of_reach_of_this_machine_stays_in_an_index_that_others_share(
    engine: RetrievalEngine,
):
    plant_reference(engine, "a", unit_rows(9, seed=1))
    engine.refresh_index()
    kind = engine.descriptor.fingerprint.key
    engine.store.path_of("a", kind).unlink()
    with transaction(engine.database) as connection:
        connection.execute(
            text(
                "INSERT INTO index_changes (video_id, fingerprint, collection, action)"
                " VALUES ('a', :kind, 'references', 'add')"
            ),
            {"kind": kind},
        )
    assert "a" in engine.refresh_index()
    assert list(engine.references.unreadable) == ["a"]


@pytest.mark.parametrize("leaves_folder", [True, False])
def test_a_search_waits_for_the_store_and_loses_no_attempt(
    engine: RetrievalEngine, tmp_path: Path, leaves_folder: bool
):
    plant_reference(engine, "a", unit_rows(9, seed=1))
    film = render_reference(tmp_path / "film.mp4", seed=1, seconds=6, size=(64, 48))
    search = ask(engine, engine.register(film))
    with unmounted(engine.settings.store_dir, leaves_folder):
        with pytest.raises(ServiceUnavailable):
            engine.plan(search)
        with transaction(engine.database) as connection:
            row = read_row(connection, "searches", search)
        assert (row.status, row.attempts, row.reason) == ("waiting", 0, "service_unavailable")
    assert len(engine.plan(search)) == 1
    assert read(engine, search).pairs_left == 1


def test_a_foreign_video_is_not_failed_because_the_store_is_away(engine: RetrievalEngine):
    plant_reference(engine, "a", unit_rows(9, seed=1))
    with unmounted(engine.settings.store_dir, True), pytest.raises(ServiceUnavailable):
        engine.ingest("a")
    assert engine.ingest("a").status == "ready"


def test_the_store_of_another_database_is_none(engine: RetrievalEngine):
    plant_reference(engine, "a", unit_rows(9, seed=1))
    with transaction(engine.database) as connection:
        connection.execute(text("UPDATE store_identity SET id = 'another'"))
    other = make_engine(engine.database, engine.settings.home)
    for use in (other.refresh_index, other.store.check, lambda: other.store.read("/x.npy")):
        with pytest.raises(ServiceUnavailable, match=r"the database 'another'.*--adopt"):
            use()
    other.identity.adopt()
    assert len(other.refresh_index()) == 1


def test_a_site_of_an_earlier_release_is_not_founded_anew_where_its_files_are_not(
    engine: RetrievalEngine,
):
    plant_reference(engine, "a", unit_rows(9, seed=1))
    root = engine.settings.store_dir
    (root / "store.id").unlink()
    with transaction(engine.database) as connection:
        connection.execute(text("UPDATE store_identity SET founded_at = NULL"))
    with unmounted(root, True), pytest.raises(ServiceUnavailable, match="none of 1 files is there"):
        make_engine(engine.database, engine.settings.home).store.check()
    assert len(make_engine(engine.database, engine.settings.home).refresh_index()) == 1
    assert (root / "store.id").exists()


def test_two_machines_that_start_at_once_agree_on_the_store(db: Engine, tmp_path: Path):
    first, second = (make_engine(db, tmp_path / "home") for _ in range(2))
    first.store.check()
    second.store.check()
    blind = make_engine(db, tmp_path / "blind")
    with pytest.raises(ServiceUnavailable, match="No such file"):
        blind.store.check()
    assert not (tmp_path / "blind").exists()


@contextmanager
def no_file_can_be_opened() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", ["a.npy", "a.safetensors"])
def test_a_process_with_too_many_open_files_blames_no_descriptors(tmp_path: Path, name: str):
    path = tmp_path / Store(tmp_path).write("v", "kind", unit_rows(2))
    np.save(tmp_path / "a.npy", unit_rows(2))
    shutil.copy(path, tmp_path / "a.safetensors")
    with no_file_can_be_opened(), pytest.raises(ServiceUnavailable, match="Too many open files"):
        read_descriptors(tmp_path / name)
    assert read_descriptors(tmp_path / name).frames == 2


def test_the_name_of_a_new_file_is_safe_on_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every folder that got a new entry is synced, the file's own last."""
    synced: list[Path] = []
    sync = os.fsync

    def note(handle: int) -> None:
        sync(handle)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))

    monkeypatch.setattr(os, "fsync", note)
    path = tmp_path / Store(tmp_path).write("v", "kind", unit_rows(2))
    assert synced == [tmp_path, tmp_path / "kind", path.parent]


def test_lost_descriptors_of_a_film_that_is_there_are_made_again(
    engine: RetrievalEngine, tmp_path: Path
):
    film = render_reference(tmp_path / "film.mp4", seed=1, seconds=6, size=(64, 48))
    video_id = engine.register(film)
    engine.ingest(video_id)
    kind = engine.descriptor.fingerprint.key
    engine.store.path_of(video_id, kind).unlink()
    with pytest.raises(MissingFile):
        engine.read_descriptors(video_id)
    assert engine.describe_again(video_id, kind)
    with transaction(engine.database) as connection:
        row = read_row(connection, "videos", video_id)
    assert (row.status, row.sent_at) == ("waiting", None), "the sweeper sends it"
    assert engine.ingest(video_id).status == "ready"
    film.unlink()
    engine.store.path_of(video_id, kind).unlink()
    assert not engine.describe_again(video_id, kind)


def test_the_doctor_says_that_the_store_is_away_and_marks_nothing(database: str, tmp_path: Path):
    settings = Settings(home=tmp_path / "home", database_url=database, localizer="tn")
    found = next(each for each in examine(settings) if each.part == "store")
    assert found.is_well
    assert not settings.store_dir.exists()
    engine = make_engine(connect(database), settings.home)
    engine.store.check()
    with unmounted(settings.store_dir, True):
        found = next(each for each in examine(settings) if each.part == "store")
    assert "is not the store of this database" in found.found
    assert "mount it" in found.advice


def test_the_migration_keeps_a_site_and_goes_back(database: str, tmp_path: Path):
    engine = make_engine(connect(database), tmp_path / "home")
    plant_reference(engine, "a", unit_rows(9, seed=1))
    migrate(database, "0009")
    migrate(database)
    again = make_engine(connect(database), tmp_path / "home")
    with pytest.raises(ServiceUnavailable, match="--adopt"):
        again.store.check()  # marked by a schema that is gone
    again.identity.adopt()
    assert len(again.refresh_index()) == 1


def paths_of(engine: RetrievalEngine) -> dict[str, str]:
    with transaction(engine.database) as connection:
        rows = connection.execute(text("SELECT video_id, path FROM descriptor_sets"))
        return {row.video_id: row.path for row in rows}


def test_the_migration_to_keys_keeps_every_row_readable_and_goes_back(
    database: str, tmp_path: Path
):
    engine = make_engine(connect(database), tmp_path / "home")
    root = engine.settings.store_dir
    foreign = tmp_path / "foreign.npy"
    np.save(foreign, unit_rows(9, seed=2))
    for name in ("a", 'ü "b"'):
        plant_reference(engine, name, unit_rows(9, seed=1))
    plant_reference(engine, "foreign", unit_rows(9, seed=2))
    with transaction(engine.database) as connection:
        connection.execute(
            text("UPDATE descriptor_sets SET path = :path WHERE video_id = 'foreign'"),
            {"path": str(foreign)},
        )
    keys = paths_of(engine)
    migrate(database, "0022")
    assert paths_of(engine) == {name: str(root / key) for name, key in keys.items()}
    migrate(database)
    assert paths_of(engine) == keys
    again = make_engine(connect(database), tmp_path / "home")
    assert all(again.store.read(path).frames == 9 for path in paths_of(again).values())


def test_rows_of_a_home_that_was_moved_keep_their_paths_and_are_read(database: str, tmp_path: Path):
    engine = make_engine(connect(database), tmp_path / "home")
    for name in ("a", "b"):
        plant_reference(engine, name, unit_rows(9, seed=1))
    migrate(database, "0022")
    with transaction(engine.database) as connection:
        connection.execute(
            text(
                "UPDATE descriptor_sets SET path = replace(path, '/home/', '/old/') "
                "WHERE video_id = 'a'"
            )
        )
    migrate(database)
    paths = paths_of(engine)
    assert paths["a"].startswith(f"{tmp_path}/old/store/")
    assert all(engine.store.read(path).frames == 9 for path in paths.values())
