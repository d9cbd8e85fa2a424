"""The same index in Milvus. `make test-milvus` runs this where pymilvus and milvus-lite are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine

pytest.importorskip(
    "pymilvus", reason="pymilvus is not installed here; `make test-milvus` runs these tests"
)
pytest.importorskip(
    "milvus_lite", reason="milvus-lite is not installed here; `make test-milvus` runs these tests"
)

from retrieval.database import connect
from retrieval.errors import (
    BadSetting,
    FingerprintMismatch,
    NotFound,
    Refused,
    ServiceUnavailable,
)
from retrieval.index.candidates import propose_pairs
from retrieval.index.index import Hits, Position
from retrieval.index.local import VideoIndex
from retrieval.index.milvus import MilvusIndex, connection_of
from retrieval.plugins import Pooled
from retrieval.store import Store, StoredDescriptors
from tests.retrieval.index.index_site import (
    alive_at,
    check_answers,
    open_replica,
    plant,
    rows_of,
    withdraw,
)

DIMENSION = 16
ODD = 'a "quoted" \\ id; DROP'


def pooled(seed: int, count: int = 3, dimension: int = DIMENSION) -> Pooled:
    rows = np.random.default_rng(seed).standard_normal((count, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    starts = np.arange(count) * 4.0
    spans = np.stack([starts, starts + 8], axis=1)
    return Pooled(rows.astype(np.float32), spans.astype(np.float32))


def hits_of(hits: Hits, line: int) -> list[tuple[str, float, float]]:
    """A line's hits without the places that nothing filled."""
    return [
        (hits.videos[number], float(span[0]), round(float(score), 3))
        for number, span, score in zip(
            hits.numbers[line], hits.spans[line], hits.scores[line], strict=True
        )
        if number >= 0
    ]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it tells each refusal itself
    return str(tmp_path_factory.mktemp("milvus") / "vectors.db")


@pytest.fixture
def make_index(url: str, request: pytest.FixtureRequest) -> Callable[[], MilvusIndex]:
    """Opens the index of this test's own key, as each of several processes would."""
    key = f"references.kind.{request.node.name}"
    return lambda: MilvusIndex(url, key, DIMENSION)


def test_any_history_of_changes_answers_like_the_index_of_faiss(
    make_index: Callable[[], MilvusIndex],
):
    index, other = make_index(), VideoIndex("key", DIMENSION)
    rng = np.random.default_rng(5)
    names = ["a", "b", ODD, "d", "ü" * 300]
    for step in range(25):
        name = names[rng.integers(len(names))]
        if rng.random() < 0.7:
            vectors = pooled(step, int(rng.integers(1, 6)))
            index.add(name, vectors)
            other.add(name, vectors)
        else:
            index.remove(name)
            other.remove(name)
        if step % 5 == 0:
            queries = pooled(99, 4).vectors
            for without in (None, ODD, "unknown"):
                found, expected = (each.search(queries, 9, without) for each in (index, other))
                for line in range(4):
                    assert hits_of(found, line) == hits_of(expected, line)
    assert (len(index), index.vectors) == (len(other), other.vectors)
    assert [name in index for name in names] == [name in other for name in names]


def test_an_empty_index_finds_nothing(make_index: Callable[[], MilvusIndex]):
    index = make_index()
    hits = index.search(pooled(1).vectors, 5)
    assert (hits.numbers.shape, hits.spans.shape) == ((3, 0), (3, 0, 2))
    assert (len(index), index.vectors, "a" in index) == (0, 0, False)
    assert index.position == Position()


def test_a_second_process_sees_what_the_first_did_and_how_far_it_came(
    make_index: Callable[[], MilvusIndex],
):
    first, second = make_index(), make_index()
    first.add("a", pooled(1))
    first.commit(Position(7, "then", {"lost": "/there"}))
    assert second.position == Position(7, "then", {"lost": "/there"})
    assert second.search(pooled(1).vectors, 1).videos == ["a"]
    second.remove("a")
    assert first.search(pooled(1).vectors, 1).videos == []


def test_an_index_made_anew_takes_the_old_ones_place_in_one_step(
    make_index: Callable[[], MilvusIndex],
):
    builder, searcher = make_index(), make_index()
    builder.add("old", pooled(1))
    builder.commit(Position(1, "then"))
    abandoned = builder.begin_anew()
    abandoned.add("half", pooled(4))
    anew = builder.begin_anew()
    assert anew.position == Position()
    anew.add("new", pooled(2))
    anew.commit(Position(2, "now"))
    for each in (builder, searcher):
        assert each.search(pooled(1).vectors, 1).videos == ["old"], "until it is served"
        assert each.position == Position(1, "then")
    anew.serve()
    assert searcher.search(pooled(1).vectors, 1).videos == ["new"]
    assert searcher.position == Position(2, "now")
    searcher.add("newer", pooled(3))
    assert len(builder) == 2
    own = [each for each in builder._client.list_collections() if builder._alias in each]
    assert own == [builder._served()], "the old collection is gone"


def test_vectors_of_another_dimension_are_refused(make_index: Callable[[], MilvusIndex]):
    with pytest.raises(FingerprintMismatch, match=r"16 dimensions.*'b' has 8"):
        make_index().add("b", pooled(1, dimension=8))


def test_candidates_come_from_milvus_as_from_faiss(make_index: Callable[[], MilvusIndex]):
    index, other = make_index(), VideoIndex("key", DIMENSION)
    for number in range(12):
        for each in (index, other):
            each.add(f"film-{number}", pooled(number, 4))
    query = Pooled(pooled(3, 4).vectors, pooled(3, 4).spans)
    found, expected = (propose_pairs(each, "film-3", query, 5, -1.0) for each in (index, other))
    assert [pair.reference_id for pair in found] == [pair.reference_id for pair in expected]
    assert np.allclose([pair.score for pair in found], [pair.score for pair in expected], atol=1e-4)


def test_replicas_share_one_index_and_follow_the_log(db: Engine, tmp_path: Path):
    url = str(tmp_path / "vectors.db")
    site = open_replica(db, tmp_path, index_url=url)
    for name in ("a", "b", "c"):
        plant(site, name)
    site.refresh()
    check_answers(site, {"a", "b", "c"}, ["a", "b", "c"])
    other = open_replica(db, tmp_path, index_url=url)
    withdraw(other, "b")
    plant(other, "d")
    other.refresh()
    check_answers(site, alive_at(site), ["a", "b", "c", "d"])
    assert not site.is_due(), "what is shared needs no snapshot"
    facts = site.facts()
    assert (facts["kind"], facts["videos"], facts["vectors"]) == ("milvus", 3, 18)
    site.build()
    other.refresh()
    check_answers(other, alive_at(site), ["a", "b", "c", "d"])


def test_searches_and_new_videos_go_on_while_the_index_is_made_anew(
    db: Engine, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = str(tmp_path / "vectors.db")
    impatient = connect(f"{database}{'&' if '?' in database else '?'}options=-c%20lock_timeout=5s")
    builder = open_replica(db, tmp_path, index_url=url)
    for name in ("a", "b"):
        plant(builder, name)
    builder.refresh()
    searcher = open_replica(impatient, tmp_path, index_url=url)
    read, met = Store.read, []

    def meet_searcher(store: Store, *what: Any) -> StoredDescriptors:
        """In the middle of the build: what somebody else does and sees."""
        if store is builder.store and not met:
            met.append(True)
            plant(searcher, "new")
            withdraw(searcher, "b")
            searcher.refresh()
            check_answers(searcher, {"a", "new"}, ["a", "b", "new"])
            with pytest.raises(Refused, match="made anew by another process"):
                searcher.build()
        return read(store, *what)

    monkeypatch.setattr(Store, "read", meet_searcher)
    builder.build()
    assert met == [True]
    for site in (builder, searcher):
        site.refresh()
        check_answers(site, {"a", "new"}, ["a", "b", "new"])


def test_an_index_of_another_database_is_made_anew_by_who_finds_out(db: Engine, tmp_path: Path):
    url = str(tmp_path / "vectors.db")
    site = open_replica(db, tmp_path, index_url=url)
    plant(site, "a")
    site.refresh()
    site.index.add("stranger", site.pooler.pool(rows_of("stranger")))
    site.index.commit(Position(99, "of another log"))
    other = open_replica(db, tmp_path, index_url=url)
    other.refresh()
    check_answers(site, {"a"}, ["a"])
    assert "stranger" not in site.index


def test_a_video_that_cannot_be_read_keeps_no_search_waiting_for_who_tries_it(
    db: Engine, database: str, tmp_path: Path
):
    url = str(tmp_path / "vectors.db")
    site = open_replica(db, tmp_path, index_url=url)
    for name in ("a", "b"):
        plant(site, name)
    site.store.path_of("b", "test-kind").unlink()
    site.refresh()
    impatient = connect(f"{database}{'&' if '?' in database else '?'}options=-c%20lock_timeout=5s")
    with site._alone():
        open_replica(impatient, tmp_path, index_url=url).refresh()


def test_a_writer_that_dies_between_rows_and_commit_is_followed_by_one_that_repeats_it(
    db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = str(tmp_path / "vectors.db")
    site = open_replica(db, tmp_path, index_url=url)
    plant(site, "a")
    site.refresh()
    plant(site, "b")
    withdraw(site, "a")
    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "commit", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            site.refresh()
    later = open_replica(db, tmp_path, index_url=url)
    later.refresh()
    check_answers(later, {"b"}, ["a", "b"])


def test_an_unreadable_video_is_remembered_in_milvus(db: Engine, tmp_path: Path):
    url = str(tmp_path / "vectors.db")
    site = open_replica(db, tmp_path, index_url=url)
    plant(site, "a")
    path = site.store.path_of("a", "test-kind")
    content = path.read_bytes()
    path.unlink()
    site.refresh()
    assert list(open_replica(db, tmp_path, index_url=url).unreadable) == ["a"]
    with pytest.raises(NotFound, match="1 references cannot be read"):
        site.build()
    path.write_bytes(content)
    site.refresh()
    check_answers(site, {"a"}, ["a"])


def test_urls_are_read_or_refused_with_what_to_write():
    known = connection_of("milvus://ana:s%40cret@vectors:1234/videos")
    assert known == {
        "uri": "http://vectors:1234",
        "user": "ana",
        "password": "s@cret",
        "db_name": "videos",
    }
    assert connection_of("milvus+tls://vectors") == {"uri": "https://vectors:19530"}
    for wrong in ("vectors", "redis://vectors", "milvus://"):
        with pytest.raises(BadSetting, match=r"VCL_INDEX_URL.*milvus://user:password@host"):
            connection_of(wrong)


def test_a_milvus_that_is_away_is_a_sentence_without_the_password():
    with pytest.raises(ServiceUnavailable, match=r"Milvus at milvus://ana:\*\*\*@127.0.0.1:9"):
        MilvusIndex("milvus://ana:secret@127.0.0.1:9", "key", DIMENSION)
