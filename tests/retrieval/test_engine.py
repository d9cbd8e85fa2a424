"""Ingest and planning on a real database, with a descriptor cheap enough for a test."""

from __future__ import annotations

import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.describe.views import NO_VIEWS, ViewKind
from retrieval.description import describe_video
from retrieval.engine import RetrievalEngine
from retrieval.errors import BadVideo, NotFound, ServiceUnavailable
from retrieval.index.candidates import propose_pairs
from retrieval.index.pooling import pool_query
from retrieval.media.video import probe_video, read_frames
from retrieval.records import Fingerprint, Search, Video
from retrieval.settings import Settings
from retrieval.work import catalogue, leases, outdated, searches, unsettled
from retrieval.work.messages import BATCH_PAIRS, LOCALIZE
from tests.retrieval.planted_rows import read_row
from tests.retrieval.test_store import unit_rows
from vcl_plugin.demo.footage import render_reference, write_video


class CoarseDescriptor:
    """The picture itself, 16 x 16 grey points: enough to tell rendered scenes apart."""

    name = "coarse"
    fingerprint = Fingerprint("coarse", "none", 256, 1.0, "grey16")
    frame_size = (16, 16)

    def embed(self, frames: np.ndarray) -> np.ndarray:
        rows = frames.mean(axis=3).reshape(len(frames), 256)
        rows = rows - rows.mean(axis=1, keepdims=True) + 1e-3
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def make_engine(db: Engine, home: Path, **settings: Any) -> RetrievalEngine:
    engine = RetrievalEngine(Settings(home=home, **settings), db)
    engine.__dict__["descriptor"] = CoarseDescriptor()
    return engine


@pytest.fixture
def engine(db: Engine, tmp_path: Path) -> RetrievalEngine:
    return make_engine(db, tmp_path / "home")


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render_reference(
        tmp_path_factory.mktemp("films") / "film.mp4", seed=1, seconds=6, size=(64, 48)
    )


def plant_reference(engine: RetrievalEngine, name: str, rows: np.ndarray) -> None:
    """A described reference without a film behind it."""
    kind = engine.descriptor.fingerprint.key
    path = engine.store.write(name, kind, rows)
    with transaction(engine.database) as connection:
        catalogue.register_foreign(connection, name, None, float(len(rows)))
        catalogue.record_descriptors(connection, name, kind, str(path), len(rows), 256)
        catalogue.make_reference(connection, name)


def ask(engine: RetrievalEngine, query_id: str) -> str:
    with transaction(engine.database) as connection:
        return searches.create_search(connection, query_id)


def read(engine: RetrievalEngine, search_id: str) -> Search:
    with transaction(engine.database) as connection:
        return searches.read_search(connection, search_id)


def test_a_film_is_ready_after_ingest_and_its_descriptors_are_stored(
    engine: RetrievalEngine, film: Path
):
    video_id = engine.register(film)
    video = engine.ingest(video_id)
    assert (video.status, video.leased_by, video.duration) == ("ready", None, 6.0)
    assert engine.read_descriptors(video_id).frames == 6
    assert engine.ingest(video_id).attempts == 1, "what is ready is not described again"


@pytest.mark.parametrize("declared", [-5.0, 1e9])
def test_a_film_is_as_long_as_it_plays_whatever_its_container_says(
    engine: RetrievalEngine, tmp_path: Path, declared: float
):
    path = render_reference(tmp_path / "film.mkv", seed=1, seconds=6, size=(64, 48))
    content = path.read_bytes()
    place = content.index(b"\x44\x89\x88") + 3  # Matroska's Duration: milliseconds, a float of 8
    path.write_bytes(content[:place] + struct.pack(">d", 1000 * declared) + content[place + 8 :])
    assert probe_video(path).duration == pytest.approx(declared)
    video = engine.ingest(engine.register(path))
    assert (video.status, video.duration) == ("ready", pytest.approx(6, abs=0.1))


def test_a_file_that_is_no_film_fails_with_its_reason(engine: RetrievalEngine, tmp_path: Path):
    (tmp_path / "words.mp4").write_text("just words")
    video = engine.ingest(engine.register(tmp_path / "words.mp4"))
    assert (video.status, video.reason) == ("failed", "not_video")
    assert "words.mp4" in video.message


def test_a_film_beyond_the_most_frames_is_refused_and_no_part_of_it_passes_for_all(
    db: Engine, tmp_path: Path, film: Path
):
    length = make_engine(db, tmp_path / "home", max_frames=1000)
    frames = len(describe_video(film, length.descriptor, length.settings)[0].descriptors)
    exact = replace(length.settings, max_frames=frames)
    assert describe_video(film, length.descriptor, exact)[0].frames == frames
    engine = make_engine(db, tmp_path / "home", max_frames=frames - 1)
    video = engine.ingest(engine.register(film))
    assert (video.status, video.reason) == ("failed", "too_long")
    assert "raise VCL_MAX_FRAMES" in str(video.message)


def test_a_file_that_vanished_or_changed_fails_and_can_be_registered_again(
    engine: RetrievalEngine, film: Path, tmp_path: Path
):
    copy = tmp_path / "copy.mp4"
    copy.write_bytes(film.read_bytes())
    video_id = engine.register(copy)
    copy.write_bytes(b"something else")
    assert engine.ingest(video_id).reason == "changed"
    copy.unlink()
    assert engine.register(film) == video_id
    assert engine.ingest(video_id).status == "ready"


def test_a_path_without_a_file_is_refused_before_any_row(engine: RetrievalEngine, tmp_path: Path):
    with pytest.raises(BadVideo) as caught:
        engine.register(tmp_path / "gone.mp4")
    assert caught.value.code == "missing"


def test_descriptors_that_were_deleted_are_made_again(engine: RetrievalEngine, film: Path):
    video_id = engine.register(film)
    engine.ingest(video_id)
    path = engine.store.path_of(video_id, engine.descriptor.fingerprint.key)
    path.unlink()
    assert engine.ingest(video_id).status == "ready"
    assert path.exists()


def test_an_attempt_that_the_video_is_not_to_blame_for_is_given_back(
    engine: RetrievalEngine, film: Path, monkeypatch: pytest.MonkeyPatch
):
    def break_down(frames: np.ndarray) -> np.ndarray:
        raise MemoryError("no room for 3 GB")

    monkeypatch.setattr(engine.descriptor, "embed", break_down)
    video_id = engine.register(film)
    video = engine.ingest(video_id)
    assert (video.status, video.reason) == ("waiting", "worker_error")
    assert "no room for 3 GB" in video.message
    search = ask(engine, video_id)
    plant_reference(engine, "r", unit_rows(5))
    assert engine.plan(search) == []
    state = read(engine, search)
    assert (state.status, state.reason) == ("waiting", "worker_error")


def test_a_search_and_its_video_are_never_tried_beyond_their_attempts(
    engine: RetrievalEngine, film: Path, monkeypatch: pytest.MonkeyPatch
):
    def break_down(frames: np.ndarray) -> np.ndarray:
        raise MemoryError("no room for 3 GB")

    monkeypatch.setattr(engine.descriptor, "embed", break_down)
    plant_reference(engine, "r", unit_rows(5))
    video_id = engine.register(film)
    search = ask(engine, video_id)
    most = engine.settings.max_attempts
    for _ in range(2 * most):  # as messages that came twice, before any sweep
        engine.ingest(video_id, wait=False)
        engine.plan(search)
    with transaction(engine.database) as connection:
        assert read_row(connection, "videos", video_id).attempts == most
        assert read_row(connection, "searches", search).attempts <= most
    assert engine.ingest(video_id).reason == "attempts_exhausted", "nobody waits for it in vain"


def test_two_that_want_one_video_describe_it_once(engine: RetrievalEngine, film: Path):
    video_id = engine.register(film)
    found: list[Video] = []
    threads = [
        threading.Thread(target=lambda: found.append(engine.ingest(video_id))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.status for each in found] == ["ready", "ready"]
    assert [each.attempts for each in found] == [1, 1]


def test_an_ingest_that_need_not_wait_leaves_a_leased_video_to_its_holder(
    engine: RetrievalEngine, film: Path
):
    video_id = engine.register(film)
    with transaction(engine.database) as connection:
        leases.acquire(connection, "videos", [video_id], "another", 60)
    assert engine.ingest(video_id, wait=False).leased_by == "another"


def test_a_full_store_costs_neither_the_video_nor_its_search_an_attempt(
    engine: RetrievalEngine, film: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> Path:
        raise ServiceUnavailable("there is no room", code="store_full")

    plant_reference(engine, "r", unit_rows(5))
    video_id = engine.register(film)
    search = ask(engine, video_id)
    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "write", full)
        for _ in range(engine.settings.max_attempts + 1):
            with pytest.raises(ServiceUnavailable):
                engine.plan(search)
    with transaction(engine.database) as connection:
        assert read_row(connection, "videos", video_id).attempts == 0
        assert read_row(connection, "videos", video_id).reason == "store_full"
        assert read_row(connection, "searches", search).attempts == 0
    engine.plan(search)
    assert read(engine, search).status == "localizing"


def test_a_foreign_video_without_our_descriptors_is_no_query_of_ours_and_is_left_as_it_was(
    engine: RetrievalEngine,
):
    with transaction(engine.database) as connection:
        catalogue.register_foreign(connection, "theirs", None, 9.0)
    plant_reference(engine, "r", unit_rows(5))
    search = ask(engine, "theirs")
    assert engine.plan(search) == []
    assert read(engine, search).reason == "no_descriptors"
    with transaction(engine.database) as connection:
        assert catalogue.read_video(connection, "theirs").status == "ready"


def test_a_planned_search_sends_its_candidates_in_batches(db: Engine, tmp_path: Path, film: Path):
    engine = make_engine(db, tmp_path / "home", top_k=20, min_candidate_score=-1.0)
    for number in range(BATCH_PAIRS + 3):
        plant_reference(engine, f"r{number:02}", unit_rows(20, seed=number))
    search = ask(engine, engine.register(film))
    messages = engine.plan(search)
    sent = [each for message in messages for each in message.arguments["reference_ids"]]
    assert [message.task for message in messages] == [LOCALIZE, LOCALIZE]
    assert len(messages[0].arguments["reference_ids"]) == BATCH_PAIRS
    assert sorted(sent) == [f"r{number:02}" for number in range(BATCH_PAIRS + 3)]
    assert {message.arguments["search_id"] for message in messages} == {search}
    state = read(engine, search)
    assert (state.status, state.pairs_total, state.pairs_left) == ("localizing", 11, 11)
    assert engine.plan(search) == [], "a search is planned once"


def test_a_search_of_what_was_compared_before_asks_to_judge_it_anew(
    db: Engine, tmp_path: Path, film: Path
):
    engine = make_engine(db, tmp_path / "home", min_candidate_score=-1.0)
    plant_reference(engine, "r", unit_rows(20))
    query = engine.register(film)
    assert len(engine.plan(ask(engine, query))) == 1
    with transaction(engine.database) as connection:
        connection.execute(text("UPDATE pairs SET status = 'done'"))
    search = ask(engine, query)
    [message] = engine.plan(search)
    assert message.task == LOCALIZE
    assert message.arguments == {"query_id": query, "reference_ids": []}
    assert read(engine, search).status == "done"
    with transaction(engine.database) as connection:
        assert unsettled.read_asking(connection, query) is not None, "a row that outlives a message"


def test_batches_are_bounded_in_frames_and_lose_no_reference(db: Engine, tmp_path: Path):
    engine = make_engine(db, tmp_path / "home", batch_frames=50)
    for name, frames in (("a", 30), ("b", 30), ("huge", 400), ("c", 10), ("d", 10)):
        plant_reference(engine, name, unit_rows(frames))
    groups = engine.group_references(["a", "b", "huge", "c", "d", "unknown"])
    assert groups == [["a"], ["b"], ["huge"], ["c", "d", "unknown"]]


def test_a_search_with_an_empty_index_fails_with_what_to_do(engine: RetrievalEngine, film: Path):
    search = ask(engine, engine.register(film))
    assert engine.plan(search) == []
    state = read(engine, search)
    assert (state.status, state.reason) == ("failed", "empty_index")
    assert "vcl reference add" in state.message


def test_a_search_of_a_bad_file_fails_with_the_file_s_reason(
    engine: RetrievalEngine, tmp_path: Path
):
    (tmp_path / "words.mp4").write_text("just words")
    search = ask(engine, engine.register(tmp_path / "words.mp4"))
    assert engine.plan(search) == []
    assert read(engine, search).reason == "not_video"


def test_a_query_that_is_a_reference_is_compared_with_the_others_and_says_so(
    engine: RetrievalEngine, film: Path
):
    video_id = engine.register(film)
    engine.ingest(video_id)
    with transaction(engine.database) as connection:
        catalogue.make_reference(connection, video_id)
    plant_reference(engine, "other", engine.read_descriptors(video_id).descriptors)
    search = ask(engine, video_id)
    [message] = engine.plan(search)
    assert message.arguments["reference_ids"] == ["other"]
    assert read(engine, search).reason == "query_is_reference"


def test_a_new_reference_is_found_at_once_and_a_removed_one_no_more(engine: RetrievalEngine):
    plant_reference(engine, "a", unit_rows(9, seed=1))
    assert len(engine.refresh_index()) == 1
    plant_reference(engine, "b", unit_rows(9, seed=2))
    assert len(engine.refresh_index()) == 2
    with transaction(engine.database) as connection:
        catalogue.unmake_reference(connection, "a")
    index = engine.refresh_index()
    assert "a" not in index
    assert "b" in index


def test_an_unreadable_reference_is_left_out_said_so_and_found_when_it_is_back(
    engine: RetrievalEngine, film: Path
):
    plant_reference(engine, "lost", unit_rows(9, seed=1))
    plant_reference(engine, "there", unit_rows(9, seed=2))
    path = engine.store.path_of("lost", engine.descriptor.fingerprint.key)
    content = path.read_bytes()
    path.unlink()
    engine.__dict__["settings"] = Settings(home=engine.settings.home, min_candidate_score=-1.0)
    search = ask(engine, engine.register(film))
    [message] = engine.plan(search)
    assert message.arguments["reference_ids"] == ["there"]
    state = read(engine, search)
    assert (state.reason, state.status) == ("references_unreadable", "localizing")
    with pytest.raises(NotFound, match=r"1 references cannot be read, the first is lost"):
        engine.build_index()
    path.write_bytes(content)
    assert "lost" in engine.refresh_index()
    assert len(engine.build_index()) == 2


class OtherDescriptor(CoarseDescriptor):
    """The same with other weights."""

    fingerprint = Fingerprint("coarse", "others", 256, 1.0, "grey16")


def ingest_reference(engine: RetrievalEngine, path: Path) -> str:
    video_id = engine.register(path)
    engine.ingest(video_id)
    with transaction(engine.database) as connection:
        catalogue.make_reference(connection, video_id)
    return video_id


def test_a_search_with_other_weights_says_which_references_it_does_not_see(
    db: Engine, tmp_path: Path, film: Path
):
    older, newer = (make_engine(db, tmp_path / "home", min_candidate_score=-1.0) for _ in range(2))
    newer.__dict__["descriptor"] = OtherDescriptor()
    reference = ingest_reference(older, film)
    upload = older.register(render_reference(tmp_path / "upload.mp4", 2, 3, size=(64, 48)))
    search = ask(newer, upload)
    newer.plan(search)
    state = read(newer, search)
    assert (state.status, state.reason) == ("failed", "empty_index")
    assert "1 references were left out" in str(state.message)
    plant_reference(newer, "there", unit_rows(9))
    search = ask(newer, upload)
    newer.plan(search)
    state = read(newer, search)
    assert (state.status, state.reason) == ("localizing", "references_outdated")
    assert "`vcl ingest --redescribe`" in str(state.message)
    with transaction(db) as connection:
        assert outdated.list_videos(connection, newer.descriptor.fingerprint.key) == [reference]
    newer.ingest(reference)
    newer.unseen.known_until = 0.0
    search = ask(newer, upload)
    newer.plan(search)
    assert read(newer, search).reason is None


def test_a_film_that_is_gone_keeps_the_descriptors_of_other_weights(db: Engine, tmp_path: Path):
    older, newer = (make_engine(db, tmp_path / "home") for _ in range(2))
    newer.__dict__["descriptor"] = OtherDescriptor()
    path = render_reference(tmp_path / "film.mp4", 1, 3, size=(64, 48))
    reference = ingest_reference(older, path)
    path.unlink()
    assert newer.ingest(reference).status == "failed", "for these weights"
    assert older.ingest(reference).status == "ready"
    with transaction(db) as connection:
        assert catalogue.read_video(connection, reference).reason == "missing"


def plant_upload(engine: RetrievalEngine, name: str, rows: np.ndarray) -> None:
    kind = engine.descriptor.fingerprint.key
    path = engine.store.write(name, kind, rows)
    with transaction(engine.database) as connection:
        catalogue.register_foreign(connection, name, None, float(len(rows)))
        catalogue.record_descriptors(connection, name, kind, str(path), len(rows), 256)


def rescanned(engine: RetrievalEngine, reference: str) -> list[str]:
    return sorted(each.arguments["query_id"] for each in engine.rescan(reference))


def test_a_rescan_finds_every_copy_and_not_the_nearest_few(db: Engine, tmp_path: Path):
    engine = make_engine(db, tmp_path / "home", top_k=3, localizer="tn")
    film = unit_rows(24, seed=1)
    plant_reference(engine, "film", film)
    for number in range(200):  # more than the background of a query is made of
        plant_upload(engine, f"copy{number:03}", np.concatenate([unit_rows(8, 900 + number), film]))
    for number in range(9):
        plant_upload(engine, f"other{number}", unit_rows(32, seed=100 + number))
    found = rescanned(engine, "film")
    assert [each for each in found if each.startswith("copy")] == [
        f"copy{n:03}" for n in range(200)
    ]
    assert len(found) <= 203


def test_a_rescan_asked_again_goes_on_behind_what_was_compared(db: Engine, tmp_path: Path):
    engine = make_engine(db, tmp_path / "home", top_k=2, min_candidate_score=-1, localizer="tn")
    plant_reference(engine, "film", unit_rows(24, seed=1))
    for number in range(5):
        plant_upload(engine, f"u{number}", unit_rows(24, seed=10 + number))
    rounds = [rescanned(engine, "film") for _ in range(4)]
    assert [len(each) for each in rounds] == [2, 2, 1, 0]
    assert sorted(each for found in rounds for each in found) == [
        f"u{number}" for number in range(5)
    ]
    with transaction(db) as connection:
        count = connection.execute(text("SELECT count(*) FROM searches")).scalar()
    assert count == 5, "no search is opened for what was compared"


def test_a_saved_index_is_the_start_of_the_next_process(
    engine: RetrievalEngine, db: Engine, monkeypatch: pytest.MonkeyPatch
):
    plant_reference(engine, "a", unit_rows(9, seed=1))
    engine.build_index()
    plant_reference(engine, "b", unit_rows(9, seed=2))
    later = make_engine(db, engine.settings.home)
    read_paths: list[str] = []
    original = later.store.read
    monkeypatch.setattr(
        later.store,
        "read",
        lambda path, key: (read_paths.append(str(path)), original(path, key))[1],
    )
    assert len(later.refresh_index()) == 2
    assert len(read_paths) == 1, "only what is new is read from the store"


def test_an_index_of_another_database_is_made_anew(engine: RetrievalEngine, db: Engine):
    for name in ("a", "b", "c"):
        plant_reference(engine, name, unit_rows(9))
    engine.build_index()
    with transaction(db) as connection:
        connection.execute(text("DELETE FROM videos"))
        connection.execute(text("TRUNCATE index_changes RESTART IDENTITY"))
    later = make_engine(db, engine.settings.home)
    assert len(later.refresh_index()) == 0
    for name in ("x", "y", "z"):
        plant_reference(later, name, unit_rows(9))
    another = make_engine(db, engine.settings.home)
    index = another.refresh_index()
    assert sorted(index._number) == ["x", "y", "z"]


class SharpDescriptor(CoarseDescriptor):
    """Sees frames large enough for an inner film's edges, and describes them as coarsely."""

    frame_size = (128, 128)

    def embed(self, frames: np.ndarray) -> np.ndarray:
        height, width = (side // 16 for side in frames.shape[1:3])
        blocks = frames[:, : 16 * height, : 16 * width]
        return super().embed(blocks.reshape(-1, 16, height, 16, width, 3).mean(axis=(2, 4)))


def test_a_film_shown_small_in_an_upload_is_found_through_its_part(db: Engine, tmp_path: Path):
    films = [
        render_reference(tmp_path / f"{seed}.mp4", seed, seconds=10, fps=4, size=(128, 96))
        for seed in (1, 2)
    ]
    frames = []
    with read_frames(films[0], fps=4.0) as outer, read_frames(films[1], fps=4.0) as inner:
        for one, other in zip(outer, inner, strict=True):
            mixed = one.frames // 3  # a dark background and a pale film: no edge is lost
            small = 128 + other.frames.repeat(2, axis=1)[:, ::3].repeat(2, axis=2)[:, :, ::3] // 2
            mixed[:, 20 : 20 + small.shape[1], 30 : 30 + small.shape[2]] = small
            frames += list(mixed)
    write_video(tmp_path / "upload.mp4", iter(frames), fps=4, size=(128, 96))
    engine = make_engine(db, tmp_path / "home", top_k=1)
    engine.__dict__["descriptor"] = SharpDescriptor()
    shown = engine.register(films[1])
    for video_id in (shown, engine.register(films[0])):
        engine.ingest(video_id)
    with transaction(db) as connection:
        catalogue.make_reference(connection, shown)
    for number in range(30):
        plant_reference(engine, f"r{number}", unit_rows(10, seed=number))
    upload = engine.register(tmp_path / "upload.mp4")
    engine.ingest(upload)
    stored = engine.read_descriptors(upload)
    assert sum(map(len, stored.views.runs_of(ViewKind.PART))) >= 8
    whole = replace(stored, views=NO_VIEWS)
    index = engine.refresh_index()
    best, before = (
        propose_pairs(index, upload, pool_query(engine.pooler, each), 1)[0]
        for each in (stored, whole)
    )
    assert best.reference_id == shown
    assert best.score > before.score + 0.1
