"""Videos are known by their content, references by a log that misses nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.errors import NotFound
from retrieval.work import catalogue, leases
from retrieval.work.changes import read_changes
from tests.retrieval.planted_rows import plant_videos

HASH = "0123456789abcdef" * 4
KIND = "lite0-test"


def changes(db: Engine) -> list[tuple[str, str]]:
    with transaction(db) as connection:
        found = read_changes(connection, "references", KIND, since=0)
    return [(each.action, each.video_id) for each in found]


def test_the_same_content_is_the_same_row_and_the_path_follows_the_file(db: Engine):
    with transaction(db) as connection:
        first = catalogue.register_file(connection, Path("/a.mp4"), HASH, None)
        second = catalogue.register_file(connection, Path("/b.mp4"), HASH, "another title")
        video = catalogue.read_video(connection, first)
    assert first == second == HASH[:16]
    assert (video.path, video.title) == ("/b.mp4", "a.mp4")


def test_content_registered_at_once_from_many_sides_is_one_row(db: Engine):
    ids: list[str] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        with transaction(db) as connection:
            ids.append(catalogue.register_file(connection, Path("/a.mp4"), HASH, None))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids == [HASH[:16]] * 4


def test_a_foreign_id_that_looks_like_a_hash_is_not_taken_for_the_file(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, HASH[:16])
        assert catalogue.register_file(connection, Path("/a.mp4"), HASH, None) == HASH
        assert catalogue.register_file(connection, Path("/a.mp4"), HASH, None) == HASH


def test_a_failed_video_registered_again_is_tried_again(db: Engine):
    with transaction(db) as connection:
        video = catalogue.register_file(connection, Path("/gone.mp4"), HASH, None)
        leases.acquire(connection, "videos", [video], "w", 60)
        catalogue.fail_ingest(connection, video, "missing", "it was moved", "w")
        assert catalogue.read_video(connection, video).reason == "missing"
        catalogue.register_file(connection, Path("/here.mp4"), HASH, None)
        row = catalogue.read_video(connection, video)
    assert (row.status, row.reason, row.attempts) == ("waiting", None, 0)


def test_a_ready_video_registered_again_stays_ready(db: Engine):
    with transaction(db) as connection:
        video = catalogue.register_file(connection, Path("/a.mp4"), HASH, None)
        leases.acquire(connection, "videos", [video], "w", 60)
        catalogue.finish_ingest(connection, video, 12.0, "w")
        catalogue.register_file(connection, Path("/b.mp4"), HASH, None)
        assert catalogue.read_video(connection, video).status == "ready"


def test_a_holder_who_lost_the_lease_changes_no_verdict(db: Engine):
    with transaction(db) as connection:
        video = catalogue.register_file(connection, Path("/a.mp4"), HASH, None)
        leases.acquire(connection, "videos", [video], "new", 60)
        catalogue.fail_ingest(connection, video, "too_slow", "it took too long", "old")
        assert catalogue.read_video(connection, video).status == "running"
        catalogue.finish_ingest(connection, video, 12.0, "new")
        catalogue.fail_ingest(connection, video, "too_slow", "it took too long", "old")
        assert catalogue.read_video(connection, video).status == "ready"


def test_reopening_takes_no_video_from_its_holder(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "v")
        catalogue.reopen(connection, "v")
        assert leases.acquire(connection, "videos", ["v"], "first", 60) == ["v"]
        catalogue.reopen(connection, "v")  # by a second, who saw it ready before
        assert leases.acquire(connection, "videos", ["v"], "second", 60) == []
        assert catalogue.read_video(connection, "v").leased_by == "first"


def test_a_reference_enters_the_log_when_it_is_both_described_and_a_reference(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "early", "late", "never")
        catalogue.record_descriptors(connection, "early", KIND, "/e", 9, 256)
        catalogue.record_descriptors(connection, "never", KIND, "/n", 9, 256)
        catalogue.make_reference(connection, "early")
        catalogue.make_reference(connection, "early")
        catalogue.make_reference(connection, "late")
    assert changes(db) == [("add", "early")]
    with transaction(db) as connection:
        catalogue.record_descriptors(connection, "late", KIND, "/l", 9, 256)
        catalogue.record_descriptors(connection, "late", "isc-other", "/l", 9, 256)
        catalogue.unmake_reference(connection, "early")
    assert changes(db) == [("add", "early"), ("add", "late"), ("remove", "early")]


def test_new_descriptors_of_a_reference_are_announced(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "r")
        catalogue.make_reference(connection, "r")
        catalogue.record_descriptors(connection, "r", KIND, "/old", 9, 256)
        catalogue.record_descriptors(connection, "r", KIND, "/new", 9, 256)
        found = read_changes(connection, "references", KIND, since=0)
    assert [(each.action, each.path) for each in found] == [("add", "/new"), ("add", "/new")]


def test_describing_races_with_becoming_a_reference_and_is_never_missed(db: Engine):
    names = [f"v{number:02}" for number in range(30)]
    with transaction(db) as connection:
        plant_videos(connection, *names)
    for name in names:
        barrier = threading.Barrier(2)

        def describe(name: str = name, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            with transaction(db) as connection:
                catalogue.record_descriptors(connection, name, KIND, "/d", 9, 256)

        def promote(name: str = name, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            with transaction(db) as connection:
                catalogue.make_reference(connection, name)

        threads = [threading.Thread(target=work) for work in (describe, promote)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(changes(db)) == [("add", name) for name in names]


def test_the_log_s_order_is_the_order_of_commits(db: Engine):
    """A reader that has seen number n never misses an earlier one that commits later."""
    with transaction(db) as connection:
        plant_videos(connection, "slow", "fast")
        for name in ("slow", "fast"):
            catalogue.record_descriptors(connection, name, KIND, "/d", 9, 256)
    done = threading.Event()

    def fast() -> None:
        with transaction(db) as connection:
            catalogue.make_reference(connection, "fast")
        done.set()

    with transaction(db) as connection:
        catalogue.make_reference(connection, "slow")
        thread = threading.Thread(target=fast)
        thread.start()
        assert not done.wait(0.3), "the second writer must wait for the first to commit"
    thread.join()
    assert changes(db) == [("add", "slow"), ("add", "fast")]


def test_unknown_ids_become_rows_with_the_reason_and_registering_mends_them(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "known")
        catalogue.note_unregistered(connection, ["known", "x'y", "x'y", "z"])
        assert catalogue.read_video(connection, "known").status == "ready"
        row = catalogue.read_video(connection, "x'y")
        assert (row.status, row.reason) == ("failed", "not_registered")
        assert "retrieval.register" in row.message
        plant_videos(connection, "x'y")
        row = catalogue.read_video(connection, "x'y")
        assert (row.status, row.reason) == ("ready", None)


def test_a_refused_registration_says_why_and_spoils_no_earlier_one(db: Engine):
    with transaction(db) as connection:
        plant_videos(connection, "good")
        for name in ("good", "bad"):
            catalogue.refuse_foreign(connection, name, "not_an_array", "no array")
        assert catalogue.read_video(connection, "good").status == "ready"
        bad = catalogue.read_video(connection, "bad")
    assert (bad.status, bad.reason) == ("failed", "not_an_array")


def test_a_failed_video_always_has_a_reason(db: Engine):
    with pytest.raises(Exception, match="check"), transaction(db) as connection:
        connection.execute(
            text("INSERT INTO videos (id, title, status) VALUES ('a', 'a', 'failed')")
        )


def test_what_does_not_exist_is_not_found(db: Engine):
    with transaction(db) as connection:
        with pytest.raises(NotFound, match="no video 'x'"):
            catalogue.read_video(connection, "x")
        with pytest.raises(NotFound, match="'x' is no reference"):
            catalogue.unmake_reference(connection, "x")
