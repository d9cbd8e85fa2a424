"""Replicas of one index: they follow the log, and start from what another saved."""

from __future__ import annotations

import errno
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from retrieval.database import transaction
from retrieval.describe.views import ViewKind, number_runs
from retrieval.index import replica as replicas
from retrieval.index.keeper import PAUSE, SnapshotKeeper
from retrieval.index.local import VideoIndex
from retrieval.index.replica import Replica
from retrieval.index.snapshots import current_facts, current_snapshot, lock_index
from retrieval.work import catalogue
from retrieval.work.changes import REFERENCES, UPLOADS, count_changes
from tests.retrieval.index.index_site import (
    KIND,
    Fours,
    alive_at,
    check_answers,
    open_replica,
    plant,
    rows_of,
    withdraw,
)


@pytest.fixture
def site(db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replica:
    monkeypatch.setattr(replicas, "FEWEST_CHANGES", 3)
    return open_replica(db, tmp_path)


def again(site: Replica) -> Replica:
    """Another process's replica of the same index."""
    return open_replica(site.database, site.settings.home)


def test_a_snapshot_is_made_when_enough_has_changed_and_not_before(site: Replica):
    for name in ("a", "b"):
        plant(site, name)
    assert not site.snapshot_if_due()
    plant(site, "c")
    assert site.snapshot_if_due()
    assert not site.snapshot_if_due()
    facts = site.facts()
    assert (facts["videos"], facts["changes_since_snapshot"], facts["kind"]) == (3, 0, "flat")
    assert facts["self_test"]["recall_at_1"] == 1.0
    assert facts["bytes_per_window"] > 1024
    withdraw(site, "a")
    assert site.facts()["changes_since_snapshot"] == 1


def test_every_replica_moves_to_a_new_snapshot_and_frees_what_it_replayed(site: Replica):
    for name in ("a", "b", "c"):
        plant(site, name)
    other = again(site)
    other.refresh()
    assert site.snapshot_if_due()
    plant(site, "d")
    other.refresh()
    assert isinstance(other.index, VideoIndex)
    assert other.index.snapshot == current_snapshot(site.folder, site.key)
    assert other.index.facts()["delta_vectors"] == 6
    check_answers(other, {"a", "b", "c", "d"}, ["a", "b", "c", "d"])


def test_a_trained_snapshot_answers_like_the_log_and_keeps_its_training(
    db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replicas, "FEWEST_CHANGES", 1)
    site = open_replica(db, tmp_path, index_fast_from=1000)
    for number in range(11):
        plant(site, f"film-{number}", 400)
    assert site.snapshot_if_due()
    facts = site.facts()
    assert (facts["kind"], facts["snapshot_vectors"]) == ("ivf-pq", 11 * 100)
    assert facts["bytes_per_window"] < facts["reranking_bytes_per_window"] + 100
    withdraw(site, "film-3")
    plant(site, "late", 400)
    site.refresh()
    check_answers(site, alive_at(site), ["film-0", "film-3", "film-10", "late"])

    monkeypatch.setattr(
        "retrieval.index.codes.RECALL_LOSS", 1.0
    )  # whatever recall random rows have
    assert site.snapshot_if_due()
    saved = current_facts(site.folder, site.key)
    assert saved is not None
    assert (saved.trained_on, saved.vectors) == (11 * 100, 11 * 100), "not trained again"
    fresh = again(site)
    fresh.refresh()
    check_answers(fresh, alive_at(site), ["film-0", "film-3", "film-10", "late"])


def test_a_snapshot_remembers_whom_it_could_not_read(site: Replica):
    for name in ("a", "b", "c"):
        plant(site, name)
    path = site.store.path_of("b", "test-kind")
    content = path.read_bytes()
    path.unlink()
    assert site.snapshot_if_due()
    other = again(site)
    other.refresh()
    assert list(other.unreadable) == ["b"]
    assert "b" not in other.index
    path.write_bytes(content)
    other.refresh()
    assert other.unreadable == {}
    check_answers(other, {"a", "b", "c"}, ["a", "b", "c"])


def test_a_file_replaced_by_descriptors_of_another_kind_is_left_out(
    site: Replica, caplog: pytest.LogCaptureFixture
):
    for name in ("a", "b"):
        plant(site, name)
    foreign = site.store.write("b", "another-kind", rows_of("b"))
    site.store.find(foreign).replace(site.store.path_of("b", KIND))
    site.refresh()
    assert list(site.unreadable) == ["b"]
    assert f"was made by another-kind, not by {KIND}" in caplog.text


def test_one_at_a_time_makes_a_snapshot(site: Replica):
    for name in ("a", "b", "c"):
        plant(site, name)
    with lock_index(site.folder, site.key):
        assert not again(site).snapshot_if_due()
    assert again(site).snapshot_if_due()


def shorten_idleness(database: Engine) -> None:
    """Connections of this test may be idle in a transaction for a fifth of a second."""

    def limit(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET idle_in_transaction_session_timeout = '200ms'")
        connection.commit()

    event.listen(database, "connect", limit)
    database.dispose()


def test_a_build_may_take_longer_than_a_transaction_may_be_idle(
    site: Replica, monkeypatch: pytest.MonkeyPatch
):
    for name in ("a", "b", "c"):
        plant(site, name)
    shorten_idleness(site.database)
    save = VideoIndex.save

    def save_slowly(index: VideoIndex, *arguments: Any, **named: Any) -> Path:
        time.sleep(0.6)
        return save(index, *arguments, **named)

    monkeypatch.setattr(VideoIndex, "save", save_slowly)
    assert site.snapshot_if_due()
    assert len(site.build()) == 3


def test_writing_into_a_shared_index_may_take_as_long(db: Engine, tmp_path: Path):
    shorten_idleness(db)
    site = open_replica(db, tmp_path, index_url="milvus://elsewhere")
    with site._alone():
        time.sleep(0.6)


def test_machines_with_folders_of_their_own_do_not_wait_for_each_other(
    site: Replica, tmp_path: Path
):
    for name in ("a", "b", "c"):
        plant(site, name)
    elsewhere = open_replica(site.database, tmp_path / "another machine")
    with elsewhere._alone():
        assert site.snapshot_if_due()


def test_after_a_move_to_another_database_the_old_snapshot_counts_for_nothing(site: Replica):
    for name in ("a", "b", "c"):
        plant(site, name)
    assert site.snapshot_if_due()
    with transaction(site.database) as connection:
        connection.execute(text("DELETE FROM videos"))
        connection.execute(text("TRUNCATE index_changes RESTART IDENTITY"))
    other = again(site)
    assert not other.snapshot_if_due()
    for name in ("x", "y", "z"):
        plant(other, name)
    assert other.snapshot_if_due()
    check_answers(other, {"x", "y", "z"}, ["a", "b", "x", "y", "z"])


def test_changes_are_counted_from_a_known_line_or_from_the_first(site: Replica):
    for name in ("a", "b", "c"):
        plant(site, name)
    site.refresh()
    position = site.index.position
    with transaction(site.database) as connection:
        arguments = (connection, site.collection, site.fingerprint, position.seq)
        assert count_changes(*arguments, position.stamp) == 0
        assert count_changes(*arguments, "another stamp") == 3


def test_the_keeper_asks_once_for_so_many_changes(site: Replica, tmp_path: Path):
    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).open('a').write('asked ')"
    asked = tmp_path / "asked"
    keeper = SnapshotKeeper([sys.executable, "-c", code, str(asked)], changes=4)

    def look() -> str:
        keeper.look(site.database)
        if keeper.child is not None:
            keeper.child.wait(timeout=120)
        return asked.read_text() if asked.exists() else ""

    plant(site, "a")
    assert look() == ""
    for name in ("b", "c", "d"):
        plant(site, name)
    assert look() == "asked "
    assert look() == "asked "


def test_the_keeper_asks_again_after_a_pause_when_no_snapshot_was_made(
    site: Replica, tmp_path: Path
):
    code = (
        "import pathlib, sys\n"
        "asked = pathlib.Path(sys.argv[1])\n"
        "asked.open('a').write('asked ')\n"
        "sys.exit(asked.read_text().count('asked') < 2)\n"
    )
    asked, now = tmp_path / "asked", [0.0]
    command = [sys.executable, "-c", code, str(asked)]
    keeper = SnapshotKeeper(command, changes=1, clock=lambda: now[0])

    def look() -> int:
        keeper.look(site.database)
        if keeper.child is not None:
            keeper.child.wait(timeout=120)
        return asked.read_text().count("asked")

    plant(site, "a")
    assert [look(), look(), look()] == [1, 1, 1], "it failed, and is left alone for a while"
    now[0] += PAUSE
    assert [look(), look(), look()] == [2, 2, 2], "it succeeded"


def test_a_snapshot_that_cannot_be_read_gives_way_to_a_new_one(site: Replica):
    for name in ("a", "b", "c"):
        plant(site, name)
    assert site.snapshot_if_due()
    damaged = current_snapshot(site.folder, site.key)
    assert damaged is not None
    vectors = damaged / "vectors.faiss"
    vectors.write_bytes(vectors.read_bytes()[:40])
    other = again(site)
    other.refresh()
    check_answers(other, {"a", "b", "c"}, ["a", "b", "c"])
    assert other.snapshot_if_due()
    assert current_snapshot(site.folder, site.key) not in (None, damaged)
    assert isinstance(other.index, VideoIndex)
    assert other.index.snapshot is not None


def test_a_process_that_runs_short_does_not_blame_the_snapshot(
    site: Replica, monkeypatch: pytest.MonkeyPatch
):
    for name in ("a", "b", "c"):
        plant(site, name)
    assert site.snapshot_if_due()
    saved = current_snapshot(site.folder, site.key)

    def open_nothing(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("retrieval.index.local.np.load", open_nothing)
        again(site).refresh()
    assert current_snapshot(site.folder, site.key) == saved


def test_the_keeper_ends_what_it_started(site: Replica):
    for name in ("a", "b"):
        plant(site, name)
    keeper = SnapshotKeeper([sys.executable, "-c", "import time; time.sleep(600)"], changes=1)
    keeper.look(site.database)
    child = keeper.child
    keeper.look(site.database)
    assert child is not None
    assert keeper.child is child, "one at a time"
    keeper.stop()
    assert child.poll() is not None


def test_a_video_described_anew_is_found_by_its_new_footage_only(site: Replica):
    plant(site, "a")
    plant(site, "b")
    site.refresh()
    path = site.store.write("a", "test-kind", rows_of("other footage"))
    with transaction(site.database) as connection:
        catalogue.record_descriptors(connection, "a", "test-kind", str(path), 24, 256)
    site.refresh()
    pooled = site.pooler.pool(rows_of("other footage"))
    old = site.pooler.pool(rows_of("a"))
    assert site.index.search(pooled.vectors[1:2], 1).scores[0, 0] > 0.99
    assert site.index.search(old.vectors[1:2], 1).scores[0, 0] < 0.9


def test_an_upload_is_found_by_its_parts_too_and_a_reference_by_its_whole_frames(site: Replica):
    plant(site, "film")  # a reference, and until then an upload like any other
    inner = rows_of("shown small", 8)
    parts = number_runs(ViewKind.PART, [(range(4, 12), inner)])
    site.store.write("film", KIND, rows_of("film"), views=parts)
    asked = Fours().pool(inner).vectors

    def best_score(collection: str) -> float:
        follower = Replica(collection, KIND, site.pooler, site.database, site.store, site.settings)
        follower.refresh()
        return float(follower.index.search(asked, 1).scores.min())

    assert best_score(REFERENCES) < 0.5
    withdraw(site, "film")
    assert best_score(UPLOADS) > 0.999
