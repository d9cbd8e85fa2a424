"""A localize worker leases, compares and records; whatever breaks ends in a row with a reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from sqlalchemy import Connection, Engine, text

from retrieval.database import connect, transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import BadDescriptors, ServiceUnavailable
from retrieval.records import Search, Segment, Span, Upload
from retrieval.settings import Settings
from retrieval.work import catalogue, leases, searches, unsettled
from retrieval.work.messages import BATCH_PAIRS
from retrieval.work.uploads import note_upload
from tests.retrieval.planted_rows import pass_time, read_pairs
from tests.retrieval.test_engine import CoarseDescriptor
from tests.retrieval.test_identity import unmounted
from tests.retrieval.test_store import unit_rows
from vcl_plugin.claims import assets, rights
from vcl_plugin.claims.claims import list_claims
from vcl_plugin.claims.segments import read_segments
from vcl_plugin.demo.footage import render_reference
from vcl_plugin.worker import GONE_LEASES, IllProcess, LocalizeWorker

KIND = "isc-1"
FOUND = Segment(Span(2.0, 9.00049), Span(1.0, 8.0), 0.9)


class ScriptedLocalizer:
    """Finds one segment, or does what the script says for a reference of that many frames."""

    name, fingerprint = "scripted", "scripted-1"

    def __init__(self) -> None:
        self.script: dict[int, Any] = {}
        self.calls: list[list[int]] = []

    def localize(self, query: np.ndarray, reference: np.ndarray) -> list[Segment]:
        answer = self.script.get(len(reference), [FOUND])
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    def localize_many(
        self, query: np.ndarray, references: Sequence[np.ndarray]
    ) -> list[list[Segment]]:
        self.calls.append([len(each) for each in references])
        return [self.localize(query, each) for each in references]


@pytest.fixture
def db(database: str) -> Engine:
    return connect(database)


@pytest.fixture
def worker(db: Engine, tmp_path: Path) -> LocalizeWorker:
    engine = RetrievalEngine(Settings(home=tmp_path, max_attempts=2), db)
    engine.__dict__["localizer"] = ScriptedLocalizer()
    return LocalizeWorker(engine)


def register(worker: LocalizeWorker, name: str, frames: int, kind: str = KIND) -> None:
    path = worker.engine.store.write(name, kind, unit_rows(frames))
    with transaction(worker.database) as connection:
        catalogue.register_foreign(connection, name, None, float(frames))
        catalogue.record_descriptors(connection, name, kind, str(path), frames, 256)


def localize(worker: LocalizeWorker, reference_ids: list[str]) -> int:
    return worker.localize("q", worker.engine.group_references(reference_ids))


def state(worker: LocalizeWorker, search: str = "s") -> Search:
    with transaction(worker.database) as connection:
        return searches.read_search(connection, search)


def pairs(worker: LocalizeWorker) -> dict[str, Any]:
    with transaction(worker.database) as connection:
        return {row.reference_id: row for row in read_pairs(connection)}


def test_a_batch_is_compared_at_once_and_recorded_to_the_millisecond(worker: LocalizeWorker):
    for name, frames in (("q", 20), ("a", 30), ("b", 31)):
        register(worker, name, frames)
    worker.open("s", "q", ["a", "b"], None)
    assert localize(worker, ["a", "b"]) == 2
    assert worker.engine.localizer.calls == [[30, 31]]
    assert state(worker).status == "done"
    with transaction(worker.database) as connection:
        first, second = read_segments(connection, "s")
    assert (first["query_start"], first["query_end"]) == (2.0, 9.0)
    assert {first["reference_id"], second["reference_id"]} == {"a", "b"}
    assert localize(worker, ["a", "b"]) == 0, "a message delivered twice does nothing"


def test_a_segment_shorter_than_a_millisecond_is_left_out_and_spoils_nothing(
    worker: LocalizeWorker,
):
    register(worker, "q", 20)
    register(worker, "a", 30)
    sliver = Segment(Span(5.0, 5.0001), Span(1.0, 8.0), 0.9)
    worker.engine.localizer.script[30] = [sliver, FOUND]
    worker.open("s", "q", ["a"], None)
    localize(worker, ["a"])
    with transaction(worker.database) as connection:
        assert len(read_segments(connection, "s")) == 1


def test_a_file_replaced_by_descriptors_of_another_kind_is_compared_with_nothing(
    worker: LocalizeWorker,
):
    for name, frames in (("q", 20), ("a", 30), ("b", 31)):
        register(worker, name, frames)
    foreign = worker.engine.store.write("b", "lite0-1", unit_rows(31))
    worker.engine.store.find(foreign).replace(worker.engine.store.path_of("b", KIND))
    worker.open("s", "q", ["a", "b"], None)
    assert localize(worker, ["a", "b"]) == 1
    found = pairs(worker)["b"]
    assert (found.status, found.reason) == ("quarantined", "fingerprint_mismatch")
    assert "was made by lite0-1, not by isc-1" in found.message


def test_one_bad_pair_of_a_batch_does_not_hold_the_others(worker: LocalizeWorker):
    for name, frames in (("q", 20), ("a", 30), ("bad", 31), ("c", 32)):
        register(worker, name, frames)
    worker.engine.localizer.script[31] = RuntimeError("kernel 7 failed")
    worker.open("s", "q", ["a", "bad", "c"], None)
    assert localize(worker, ["a", "bad", "c"]) == 2
    row = pairs(worker)["bad"]
    assert (row.status, row.reason, row.attempts) == ("waiting", "localizer_failed", 1)
    assert row.message == "RuntimeError: kernel 7 failed"
    assert state(worker).pairs_left == 1
    assert localize(worker, ["bad"]) == 0
    with transaction(worker.database) as connection:
        searches.count_down(connection, leases.expire(connection, "pairs", 2))
    row = pairs(worker)["bad"]
    assert (row.status, row.reason) == ("quarantined", "attempts_exhausted")
    assert row.message.endswith("RuntimeError: kernel 7 failed")
    assert (state(worker).status, state(worker).pairs_quarantined) == ("incomplete", 1)


def test_what_the_database_refuses_ends_the_attempt_of_that_pair_only(worker: LocalizeWorker):
    for name, frames in (("q", 20), ("a", 30), ("b", 31)):
        register(worker, name, frames)
    strange = Segment(Span(1.0, 3.0), Span(1.0, 3.0), 0.5)
    object.__setattr__(strange, "score", 7.0)
    worker.engine.localizer.script[30] = [strange]
    worker.open("s", "q", ["a", "b"], None)
    assert localize(worker, ["a", "b"]) == 1
    assert (pairs(worker)["a"].status, pairs(worker)["b"].status) == ("waiting", "done")


def test_lost_descriptors_are_looked_for_again_and_then_set_the_pair_aside_with_the_path(
    worker: LocalizeWorker,
):
    for name, frames in (("q", 20), ("a", 30), ("b", 31)):
        register(worker, name, frames)
    worker.engine.store.path_of("a", KIND).unlink()
    worker.open("s", "q", ["a", "b"], None)
    assert localize(worker, ["a", "b"]) == 1
    row = pairs(worker)["a"]
    assert (row.status, row.reason, row.attempts) == ("waiting", "not_found", 1)
    localize(worker, ["a"])
    with transaction(worker.database) as connection:
        searches.count_down(connection, leases.expire(connection, "pairs", 2))
    row = pairs(worker)["a"]
    assert (row.status, row.reason) == ("quarantined", "attempts_exhausted")
    assert "no descriptor file at" in row.message
    assert state(worker).status == "incomplete"


@pytest.mark.parametrize("leaves_folder", [True, False])
def test_a_moment_without_the_store_sets_no_pair_aside_and_ends_no_search(
    worker: LocalizeWorker, leaves_folder: bool
):
    for name, frames in (("q", 20), ("a", 30), ("b", 31)):
        register(worker, name, frames)
    worker.open("s", "q", ["a", "b"], None)
    with unmounted(worker.settings.store_dir, leaves_folder):
        for _ in range(3):  # more often than there are attempts
            with pytest.raises(ServiceUnavailable):
                localize(worker, ["a", "b"])
        for row in pairs(worker).values():
            assert (row.status, row.reason, row.attempts) == ("waiting", "service_unavailable", 0)
        assert (state(worker).status, state(worker).pairs_left) == ("localizing", 2)
    assert localize(worker, ["a", "b"]) == 2
    assert (state(worker).status, state(worker).pairs_quarantined) == ("done", 0)


def test_a_pair_whose_video_is_described_again_waits_for_it_and_the_others_go_on(
    worker: LocalizeWorker, tmp_path: Path
):
    worker.engine.__dict__["descriptor"] = CoarseDescriptor()
    kind = CoarseDescriptor.fingerprint.key
    film = render_reference(tmp_path / "film.mp4", seed=1, seconds=6, size=(64, 48))
    lost = worker.engine.register(film)
    worker.engine.ingest(lost)
    register(worker, "q", 20, kind)
    register(worker, "b", 31, kind)
    worker.open("s", "q", [lost, "b"], kind)
    worker.engine.store.path_of(lost, kind).unlink()
    with pytest.raises(ServiceUnavailable, match="is described again"):
        localize(worker, [lost, "b"])
    found = pairs(worker)
    assert found["b"].status == "done"
    assert (found[lost].status, found[lost].attempts) == ("waiting", 0)
    worker.engine.ingest(lost)  # as the sweeper asks for
    assert localize(worker, [lost, "b"]) == 1
    assert state(worker).status == "done"


def test_a_result_that_comes_after_its_lease_was_lost_is_dropped(
    worker: LocalizeWorker, db: Engine
):
    register(worker, "q", 20)
    register(worker, "a", 30)
    worker.open("s", "q", ["a"], None)

    def lose_lease() -> list[Segment]:
        pass_time(db, "pairs", 61)
        with transaction(db) as connection:
            ids = [row.id for row in read_pairs(connection)]
            leases.expire(connection, "pairs", 3)
            assert leases.acquire(connection, "pairs", ids, "another", 60) == ids
        return [FOUND]

    worker.engine.localizer.script[30] = lose_lease
    assert localize(worker, ["a"]) == 0
    assert pairs(worker)["a"].leased_by == "another"
    with transaction(db) as connection:
        assert read_segments(connection, "s") == []


@pytest.mark.parametrize("breaks", ["while it is read", "while it is compared"])
def test_a_worker_that_lost_its_lease_does_not_throw_away_the_new_holder_s_result(
    worker: LocalizeWorker, db: Engine, monkeypatch: pytest.MonkeyPatch, breaks: str
):
    register(worker, "q", 20)
    register(worker, "a", 30)
    worker.open("s", "q", ["a"], None)

    def lose_lease(*_: object) -> NoReturn:
        pass_time(db, "pairs", 61)
        with transaction(db) as connection:
            ids = [row.id for row in read_pairs(connection)]
            leases.expire(connection, "pairs", 3)
            leases.acquire(connection, "pairs", ids, "another", 60)
        raise BadDescriptors("the array holds NaN", code="not_finite")

    if breaks == "while it is read":
        monkeypatch.setattr(worker.engine.store, "read", lose_lease)
    else:
        worker.engine.localizer.script[30] = lose_lease
    assert localize(worker, ["a"]) == 0
    row = pairs(worker)["a"]
    assert (row.status, row.leased_by) == ("running", "another")
    assert state(worker).status == "localizing"


@pytest.mark.parametrize("away", ["the store", "the localizer's service", "the database"])
def test_a_pair_whose_service_is_away_waits_and_loses_no_attempt(
    worker: LocalizeWorker, monkeypatch: pytest.MonkeyPatch, away: str
):
    for name, frames in (("q", 20), ("a", 30), ("b", 31)):
        register(worker, name, frames)
    worker.open("s", "q", ["a", "b"], None)

    def be_away(*_: object) -> NoReturn:
        raise ServiceUnavailable(f"{away} does not answer")

    with monkeypatch.context() as patch:
        if away == "the store":
            patch.setattr(worker.engine.store, "read", be_away)
        elif away == "the database":
            patch.setattr("vcl_plugin.worker.record_segments", be_away)
        else:
            worker.engine.localizer.script[31] = be_away
        for _ in range(worker.settings.max_attempts + 1):
            with pytest.raises(ServiceUnavailable):
                localize(worker, ["a", "b"])
    row = pairs(worker)["b"]
    assert (row.status, row.attempts, row.reason) == ("waiting", 0, "service_unavailable")
    worker.engine.localizer.script.clear()
    localize(worker, ["a", "b"])
    assert (state(worker).status, state(worker).pairs_quarantined) == ("done", 0)


def test_a_database_that_is_back_before_the_lease_is_over_is_told_what_does_not_count(
    worker: LocalizeWorker, monkeypatch: pytest.MonkeyPatch
):
    register(worker, "q", 20)
    register(worker, "a", 30)
    worker.open("s", "q", ["a"], None)
    answers = iter([False, False, True])

    @contextmanager
    def fall_and_rise(database: Engine) -> Iterator[Connection]:
        if not next(answers, True):
            raise ServiceUnavailable("PostgreSQL does not answer")
        with transaction(database) as connection:
            yield connection

    def fall() -> NoReturn:
        monkeypatch.setattr("retrieval.work.leases.transaction", fall_and_rise)
        raise ServiceUnavailable("PostgreSQL does not answer")

    worker.engine.localizer.script[30] = fall
    with pytest.raises(ServiceUnavailable):
        localize(worker, ["a"])
    assert (pairs(worker)["a"].status, pairs(worker)["a"].attempts) == ("waiting", 0)


def test_a_process_that_can_compare_nothing_any_more_sets_no_pair_aside_and_ends(
    worker: LocalizeWorker, monkeypatch: pytest.MonkeyPatch
):
    names = ["a", "b", "c", "d"]
    for name in ("q", *names):
        register(worker, name, 30)
    worker.open("s", "q", names, None)

    def lose_device(*_: object) -> NoReturn:
        raise RuntimeError("CUDA error: device lost")

    with monkeypatch.context() as patch:
        patch.setattr(worker.engine.localizer, "localize", lose_device)
        with pytest.raises(IllProcess, match="device lost"):
            localize(worker, names)
        with pytest.raises(IllProcess, match="device lost"):
            worker.check_process()  # as the process in its place does before it takes any pair
    found = [(row.status, row.attempts, row.reason) for row in pairs(worker).values()]
    # The first may be what made the process ill; it pays, once.
    assert found == [("waiting", 1, "localizer_failed"), *[("waiting", 0, "worker_ill")] * 3]
    assert localize(worker, names) == 4
    assert (state(worker).status, state(worker).pairs_quarantined) == ("done", 0)


def test_a_process_ends_after_different_pairs_failed_in_a_row_and_not_before(
    worker: LocalizeWorker,
):
    for number, name in enumerate(["q", "a", "b", "good", "c"]):
        register(worker, name, 30 + number)
    script = worker.engine.localizer.script
    script |= dict.fromkeys((31, 32, 34), MemoryError("a leak"))
    worker.open("s", "q", ["a", "b", "good", "c"], None)
    for name in ("a", "a", "b", "good", "c"):
        localize(worker, [name])
    with transaction(worker.database) as connection:
        connection.execute(text("UPDATE pairs SET attempts = 0"))
    localize(worker, ["a"])
    with pytest.raises(IllProcess, match="3 pairs in a row failed"):
        localize(worker, ["b"])
    assert {row.status for row in pairs(worker).values()} == {"waiting", "done"}


def test_pairs_for_another_localizer_wait_for_it_and_lose_no_attempt(worker: LocalizeWorker):
    register(worker, "q", 20)
    register(worker, "a", 30)
    worker.open("s", "q", ["a"], None)
    worker.engine.localizer.fingerprint = "scripted-2"
    for _ in range(worker.settings.max_attempts + 1):
        assert localize(worker, ["a"]) == 0
    row = pairs(worker)["a"]
    assert (row.status, row.reason, row.attempts) == ("waiting", "other_localizer", 0)
    assert row.sent_at is None, "the next sweep sends it to somebody else"
    assert "scripted-2" in row.message
    assert "scripted-1" in row.message
    worker.engine.localizer.fingerprint = "scripted-1"
    assert localize(worker, ["a"]) == 1
    assert state(worker).status == "done"


def let_wait(worker: LocalizeWorker, seconds: float) -> None:
    with transaction(worker.database) as connection:
        connection.execute(
            text("UPDATE pairs SET asked_at = asked_at - make_interval(secs => :seconds)"),
            {"seconds": seconds},
        )


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_pairs_of_a_localizer_that_is_gone_are_compared_by_the_one_that_is_there(
    worker: LocalizeWorker, is_asked_again: bool
):
    for name, frames in (("q", 20), ("a", 30), ("b", 31)):
        register(worker, name, frames)
    worker.open("old", "q", ["a", "b"], None)
    worker.engine.localizer.fingerprint = "scripted-2"
    if is_asked_again:
        worker.open("new", "q", ["a"], None)
    assert localize(worker, ["a", "b"]) == is_asked_again
    assert (state(worker, "old").status, state(worker, "old").pairs_left) == ("localizing", 2)
    let_wait(worker, GONE_LEASES * worker.settings.lease_seconds + 1)
    assert localize(worker, ["a", "b"]) == 0, "taken over, and sent again by the next sweep"
    assert localize(worker, ["a", "b"]) == 2 - is_asked_again
    found = state(worker, "old")
    assert (found.status, found.pairs_total, found.pairs_quarantined) == ("done", 2, 0)
    with transaction(worker.database) as connection:
        assert len(read_segments(connection, "old")) == 2
        assert {row.model for row in read_pairs(connection)} == {"scripted-2"}


def test_pairs_of_a_localizer_that_another_worker_has_are_not_taken_over(worker: LocalizeWorker):
    for name, frames in (("q", 20), ("a", 30), ("b", 31)):
        register(worker, name, frames)
    worker.open("s", "q", ["a", "b"], None)
    let_wait(worker, GONE_LEASES * worker.settings.lease_seconds + 1)
    assert localize(worker, ["a"]) == 1
    worker.engine.localizer.fingerprint = "scripted-2"
    for _ in range(2):
        assert localize(worker, ["b"]) == 0
    assert pairs(worker)["b"].model == "scripted-1"


def test_pairs_of_two_fingerprints_are_compared_in_two_batches(worker: LocalizeWorker):
    for kind in (KIND, "sscd-1"):
        register(worker, "q", 20, kind)
        register(worker, "a", 30, kind)
        worker.open(f"s-{kind}", "q", ["a"], kind)
    assert localize(worker, ["a"]) == 2
    assert worker.engine.localizer.calls == [[30], [30]]


def test_many_references_are_taken_in_bounded_batches(worker: LocalizeWorker):
    names = [f"r{number:02}" for number in range(2 * BATCH_PAIRS + 1)]
    for name in ("q", *names):
        register(worker, name, 10)
    worker.open("s", "q", names, None)
    assert localize(worker, names) == len(names)
    assert [len(call) for call in worker.engine.localizer.calls] == [BATCH_PAIRS, BATCH_PAIRS, 1]


def test_a_query_without_descriptors_of_the_kind_asked_for_fails_the_search(
    worker: LocalizeWorker,
):
    register(worker, "q", 20)
    register(worker, "a", 30)
    worker.open("s", "q", ["a"], "sscd-1")
    assert (state(worker).status, state(worker).reason) == ("failed", "no_descriptors")
    assert "sscd-1" in state(worker).message


def test_a_strong_match_raises_the_claim_in_the_same_transaction(worker: LocalizeWorker):
    register(worker, "q", 20)
    register(worker, "a", 30)
    with transaction(worker.database) as connection:
        asset = assets.add_asset(connection, "Northlight", "Harbour")
        assets.add_reference(connection, "a", asset)
    worker.open("s", "q", ["a"], None)
    localize(worker, ["a"])
    with transaction(worker.database) as connection:
        [segment] = read_segments(connection, "s")
        events = connection.execute(text("SELECT to_status FROM claim_events")).scalars().all()
    assert segment["claim_id"] is not None
    assert len(events) == 1


def test_a_query_without_references_is_settled_by_who_uploads_it_now(worker: LocalizeWorker):
    register(worker, "q", 20)
    register(worker, "a", 30)
    with transaction(worker.database) as connection:
        assets.add_reference(connection, "a", assets.add_asset(connection, "Northlight", "Harbour"))
        rights.allow_use(connection, "Northlight", "nora", uploader="partner")
        note_upload(connection, "q", Upload("partner"))
    worker.open("s", "q", ["a"], None)
    localize(worker, ["a"])
    with transaction(worker.database) as connection:
        assert list_claims(connection) == []
        note_upload(connection, "q", Upload("pirate"))
        unsettled.note(connection, "q")
    localize(worker, [])
    with transaction(worker.database) as connection:
        assert [claim["status"] for claim in list_claims(connection)] == ["potential"]
        assert unsettled.read_asking(connection, "q") is None, "no sweep sends it again"
