"""Pairs as records: leased by one worker, found by their videos, ranked by their searches."""

from __future__ import annotations

import re
from enum import StrEnum

import pytest
from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.records import PairStatus, SearchStatus, VideoStatus
from retrieval.work import pairs
from retrieval.work.leases import Table
from tests.retrieval.planted_rows import METHOD, plant_search, plant_videos, read_row

MODEL = METHOD.model


@pytest.fixture
def search(db: Engine) -> str:
    with transaction(db) as connection:
        plant_videos(connection, "q", "a", "b")
        return plant_search(connection, "q", ["a", "b"])


@pytest.mark.usefixtures("search")
def test_a_leased_pair_is_what_its_row_has_become(db: Engine) -> None:
    with transaction(db) as connection:
        first, second = pairs.lease_pairs(connection, "q", ["a", "b"], MODEL, "w", 60, 3)
        assert (first.reference_id, second.reference_id) == ("a", "b")
        assert first == pairs.read_pair(connection, first.id)
        row = read_row(connection, "pairs", first.id)
    assert (first.status, first.attempts) == (row.status, row.attempts) == ("running", 1)
    assert (first.model, first.fingerprint) == (METHOD.model, METHOD.fingerprint)


@pytest.mark.usefixtures("search")
def test_a_pair_that_another_worker_holds_is_not_leased_again(db: Engine) -> None:
    with transaction(db) as connection:
        [held] = pairs.lease_pairs(connection, "q", ["a"], MODEL, "first", 60, 3)
        [left] = pairs.lease_pairs(connection, "q", ["a", "b"], MODEL, "second", 60, 3)
    assert (held.reference_id, left.reference_id) == ("a", "b")


def test_the_newest_pair_of_two_videos_has_the_best_rank_of_any_search(
    db: Engine, search: str
) -> None:
    with transaction(db) as connection:
        plant_search(connection, "q", ["b"])
        pair = pairs.find_newest(connection, "q", "b")
        assert pair is not None
        assert pairs.find_place(connection, pair.id) == pairs.Place(1, 0.5)
        assert pairs.find_newest(connection, "a", "b") is None
        connection.execute(text("DELETE FROM search_pairs"))
        assert pairs.find_place(connection, pair.id) == pairs.Place(None, None)


@pytest.mark.parametrize(
    ("table", "statuses"),
    [
        (Table.VIDEOS, VideoStatus),
        (Table.SEARCHES, SearchStatus),
        (Table.PAIRS, PairStatus),
    ],
)
def test_the_statuses_are_those_that_the_table_allows(
    db: Engine, table: Table, statuses: type[StrEnum]
) -> None:
    with transaction(db) as connection:
        allowed = connection.execute(
            text("""
            SELECT pg_get_constraintdef(oid) FROM pg_constraint
            WHERE conrelid = CAST(:table AS regclass) AND conname = :name"""),
            {"table": table.value, "name": f"{table}_status_check"},
        ).scalar_one()
    assert set(re.findall(r"'(\w+)'", allowed)) == {each.value for each in statuses}
