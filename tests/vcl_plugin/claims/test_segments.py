"""Segments are written once for a pair and read back as they were found."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from retrieval.database import connect, transaction
from retrieval.records import Segment, Span
from retrieval.work.pairs import read_pair
from tests.vcl_plugin.world import METHOD, add_reference, add_upload, record, segment
from vcl_plugin.claims.segments import Outcome, read_segments, record_segments

millis = st.integers(0, 10**7).map(lambda value: value / 1000)
spans = (
    st.tuples(millis, millis)
    .filter(lambda ends: abs(ends[0] - ends[1]) > 0.002)
    .map(lambda ends: Span(min(ends), max(ends)))
)
segments = st.builds(
    Segment, spans, spans, st.floats(0, 1), st.booleans(), st.floats(0.01, 100).map(float)
)


@pytest.fixture
def db(database: str) -> Engine:
    return connect(database)


@given(found=st.lists(segments, max_size=5))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_what_is_recorded_is_read_back(db: Engine, found: list[Segment]):
    with db.connect() as connection:  # never committed: each example starts empty
        add_upload(connection, "upload")
        add_reference(connection, "film", "Northlight")
        connection.execute(text("UPDATE videos SET duration = NULL"))  # so that nothing is clipped
        record(connection, "upload", "film", *found)
        search = connection.execute(text("SELECT id FROM searches")).scalar_one()
        rows = read_segments(connection, search)
        read = [
            Segment(
                Span(row["query_start"], row["query_end"]),
                Span(row["reference_start"], row["reference_end"]),
                row["score"],
                row["is_reversed"],
                row["speed"],
            )
            for row in rows
        ]
        assert sorted(read, key=repr) == sorted(found, key=repr)
        starts = [row["query_start"] for row in rows]
        assert starts == sorted(starts)
        connection.rollback()


def test_a_pair_recorded_before_is_not_recorded_again(db: Engine):
    with transaction(db) as connection:
        add_upload(connection, "upload")
        add_reference(connection, "film", "Northlight")
        record(connection, "upload", "film", segment(0, 10))
        pair = connection.execute(text("SELECT id FROM pairs")).scalar_one()
        again = Outcome([segment(20, 30)], [False], METHOD.model, "another", 0.1)
        leased = read_pair(connection, pair)
        assert record_segments(connection, leased, again) is None
        assert connection.execute(text("SELECT count(*) FROM segments")).scalar() == 1
