"""Reports are views: their columns are a contract, their sums count a second once."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from retrieval.database import connect, transaction
from retrieval.errors import NotFound, Refused
from retrieval.records import Segment, Span
from tests.vcl_plugin.world import METHOD, SECONDS, add_reference, add_upload, record, segment
from vcl_plugin.claims import rights
from vcl_plugin.claims.claims import decide_claim, list_claims
from vcl_plugin.claims.policies import Policy, Rule
from vcl_plugin.claims.rehearsal import rehearse_policy
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.reports.reports import REPORTS, read_report, write_csv, write_html, write_json

SQL = (Path(__file__).parents[3] / "docs" / "reference" / "sql.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REPORTS)
def test_the_columns_of_a_view_are_those_of_the_document(database: str, name: str) -> None:
    documented = re.search(rf"^\| `{name}` \|[^|]*\| `([^`]+)` \|$", SQL, flags=re.MULTILINE)
    assert documented is not None, f"docs/reference/sql.md does not describe {name}"
    with transaction(connect(database)) as connection:
        assert list(read_report(connection, name).columns) == documented[1].split(", ")


seconds = st.integers(0, int(SECONDS) - 1)
stretches = st.lists(
    st.tuples(st.sampled_from("ab"), seconds, st.integers(4, 30)), min_size=1, max_size=6
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(stretches)
def test_a_second_that_several_segments_cover_counts_once(
    database: str, found: list[tuple[str, int, int]]
) -> None:
    """Two assets of one owner in one upload, against brute force over whole seconds."""
    with connect(database).connect() as connection:  # rolled back after each example
        for name in "ab":
            add_reference(connection, name, "Ana")
        add_upload(connection, "upload")
        covered: dict[str, set[int]] = {"a": set(), "b": set()}
        for name in "ab":
            mine = [
                (start, min(start + length, int(SECONDS)))
                for r, start, length in found
                if r == name
            ]
            mine = [(start, end) for start, end in mine if end - start >= 3]
            if mine:
                record(connection, "upload", name, *(segment(start, end) for start, end in mine))
                covered[name] = {each for start, end in mine for each in range(start, end)}
        settle_claims(connection, "upload")
        by_asset = read_report(connection, "infringing_seconds_by_asset").rows
        assert {row[1][0]: row[4] for row in by_asset} == {
            name: len(each) for name, each in covered.items() if each
        }
        union = len(covered["a"] | covered["b"])
        by_owner = read_report(connection, "infringing_seconds_by_owner").rows
        uploads = read_report(connection, "uploads_by_infringing_share").rows
        assert [row[3] for row in by_owner] == ([union] if union else [])
        assert [row[4] for row in uploads] == ([union] if union else [])
        assert union <= SECONDS


def test_claims_that_come_to_meet_and_part_again_count_each_second_once(database: str) -> None:
    """A claim's spans stay as they are while another comes, is released, or loses what it had."""
    with transaction(connect(database)) as connection:
        for name in "abc":
            add_reference(connection, name, "Ana")
        add_upload(connection, "upload")

        def seconds() -> list[float]:
            by_owner = read_report(connection, "infringing_seconds_by_owner").rows
            uploads = read_report(connection, "uploads_by_infringing_share").rows
            assert [row[3] for row in by_owner] == [row[4] for row in uploads]
            return [row[4] for row in uploads]

        record(connection, "upload", "a", segment(0, 10))
        [first] = settle_claims(connection, "upload")
        assert seconds() == [10]
        record(connection, "upload", "b", segment(20, 30))
        assert len(settle_claims(connection, "upload")) == 2
        assert seconds() == [20]
        record(connection, "upload", "c", segment(5, 25))
        [third] = set(settle_claims(connection, "upload")) - {first, first + 1}
        assert seconds() == [30]
        decide_claim(connection, third, "released", "reviewer", "original")
        assert seconds() == [20]
        decide_claim(connection, first, "released", "reviewer", "original")
        assert seconds() == [10]
        meeting = text("SELECT meets_another FROM claims ORDER BY id")
        assert list(connection.execute(meeting).scalars()) == [True, True, True]
        connection.execute(
            text("UPDATE segments SET query_span = '[40,50)' WHERE reference_id = 'c'")
        )
        settle_claims(connection, "upload")
        assert list(connection.execute(meeting).scalars()) == [False, False, False]
        assert seconds() == [10]


@pytest.mark.parametrize(
    ("speed", "tempo"),
    [
        (0.89, "slower"),
        (0.9, "as it was"),
        (1.0, "as it was"),
        (1.1, "as it was"),
        (1.11, "faster"),
    ],
)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_segments_are_counted_by_direction_and_tempo(
    database: str, speed: float, tempo: str, is_reversed: bool
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10), segment(20, 25))
        settle_claims(connection, "upload")
        connection.execute(
            text("UPDATE segments SET speed = :speed, is_reversed = :reversed, score = 0.75"),
            {"speed": speed, "reversed": is_reversed},
        )
        found = read_report(connection, "segments_by_transformation").rows
        assert found == [(is_reversed, tempo, 2, 15.0, 0.75)]


def test_excluded_seconds_are_not_reported_as_infringing(database: str) -> None:
    """30 of 40 seconds: too few for the match to be held, and still nobody's."""
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(10, 50, at=40))
        settle_claims(connection, "upload")
        rights.exclude_span(connection, "film", Span(0, 70), "ana")
        settle_claims(connection, "upload")
        seconds = {
            name: [
                dict(zip(report.columns, row, strict=True))["infringing_seconds"]
                for row in report.rows
            ]
            for name in REPORTS
            if "infringing_seconds" in (report := read_report(connection, name)).columns
        }
        assert len(seconds) == 6
        assert set(map(tuple, seconds.values())) == {(10.0,)}, seconds
        assert [row["seconds"] for row in list_claims(connection)] == [10.0]
        [tried] = rehearse_policy(connection, Policy("p", (Rule("block"),)))
        assert tried["seconds"] == 10.0
        decide_claim(connection, 1, "released", "ana", "fair_use")
        rights.exclude_span(connection, "film", Span(70, 90), "ana")
        settle_claims(connection, "upload")
        # What was closed rests on what it rested on.
        assert [row["seconds"] for row in list_claims(connection)] == [40.0]


def test_a_reversed_copy_loses_the_other_end_of_the_upload(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        copy = Segment(Span(10, 30), Span(40, 80), 0.9, is_reversed=True)
        record(connection, "upload", "film", copy)
        rights.exclude_span(connection, "film", Span(0, 50), "ana")
        settle_claims(connection, "upload")
        spans = connection.execute(text("SELECT query_spans::text FROM claims")).scalar_one()
        assert spans == "{[10,25.000)}"


def test_a_short_match_the_other_way_hides_no_long_conflict(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "a", "Ana")
        add_reference(connection, "b", "Bo")
        record(connection, "a", "b", segment(0, 50, at=20))
        record(connection, "b", "a", segment(90, 92, at=60))
        settle_claims(connection, "a")
        settle_claims(connection, "b")

        def seen() -> set[tuple[str, float, float]]:
            report = read_report(connection, "reference_conflicts")
            return {(row[0], float(row[8]), float(row[9])) for row in report.rows}

        short = {("Ana", 60, 62), ("Bo", 90, 92)}
        assert seen() == {("Ana", 0, 50), ("Bo", 20, 70)} | short
        # Found both ways, nearly alike: a row for each side, and not two.
        other = replace(METHOD, model="tn-later")
        record(connection, "b", "a", segment(21, 69, at=1), method=other)
        settle_claims(connection, "b")
        assert seen() == {("Ana", 0, 50), ("Bo", 21, 69)} | short


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "UTC", "Pacific/Pago_Pago"])
def test_since_means_utc_whatever_the_zone_of_the_server(database: str, zone: str) -> None:
    with transaction(connect(database)) as connection:
        connection.execute(text(f"SET LOCAL TimeZone = '{zone}'"))
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
        connection.execute(text("UPDATE segments SET created_at = :at"), {"at": noon})
        connection.execute(
            text("UPDATE searches SET created_at = :at, finished_at = :at"), {"at": noon}
        )
        for since, rows in (
            (datetime(2026, 3, 1), 1),
            (datetime(2026, 3, 1, 12), 1),
            (datetime(2026, 3, 1, 12, 0, 1), 0),
            (datetime(2026, 3, 2), 0),
        ):
            found = read_report(connection, "infringing_segments", since=since).rows
            assert len(found) == rows, since
        for day, rows in ((1, 1), (2, 0)):
            found = read_report(connection, "search_turnaround", since=datetime(2026, 3, day)).rows
            assert len(found) == rows, day
        # A report by day has the whole day in which the time lies.
        late = datetime(2026, 3, 1, 13)
        assert len(read_report(connection, "search_turnaround", since=late).rows) == 1


def test_a_released_claim_leaves_the_infringement_reports(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        assert len(read_report(connection, "infringing_segments").rows) == 1
        decide_claim(connection, 1, "released", "reviewer", "original")
        for name in ("infringing_segments", "infringing_seconds_by_asset", "claims_open"):
            assert read_report(connection, name).rows == []
        day = read_report(connection, "claims_daily").rows[0]
        assert (day[2], day[6]) == (1, 1)  # raised and released


def test_filters_narrow_a_report_and_a_missing_column_is_told(database: str) -> None:
    with transaction(connect(database)) as connection:
        for name, owner in (("a", "Ana"), ("b", "Bo")):
            add_reference(connection, name, owner)
            add_upload(connection, f"upload {name}")
            record(connection, f"upload {name}", name, segment(0, 10))
            settle_claims(connection, f"upload {name}")
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        rows = read_report(connection, "infringing_segments", owner="Bo").rows
        assert [row[3] for row in rows] == ["Bo"]
        assert read_report(connection, "infringing_segments", since=tomorrow).rows == []
        assert len(read_report(connection, "claims_open", limit=1).rows) == 1
        with pytest.raises(Refused, match="segments_by_transformation has no owner"):
            read_report(connection, "segments_by_transformation", owner="Bo")
        with pytest.raises(NotFound, match="no report 'gossip'"):
            read_report(connection, "gossip")


def test_the_formats_hold_the_same_rows_and_escape_what_is_hostile(database: str) -> None:
    hostile = 'Ana, "the <b>bold</b>"\n; DROP TABLE claims'
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", hostile)
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        report = read_report(connection, "infringing_segments")
    row = json.loads(write_json(report))[0]
    assert (row["owner"], row["query_end"], row["is_reversed"]) == (hostile, 10.0, False)
    assert next(csv.DictReader(io.StringIO(write_csv(report))))["owner"] == hostile
    page = write_html(report)
    assert "<b>bold" not in page
    assert "&lt;b&gt;bold" in page


def test_an_analyst_cannot_stop_recording_with_advisory_locks(database: str) -> None:
    engine = connect(database)
    with transaction(engine) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
    with engine.connect() as analyst, transaction(engine) as connection:
        analyst.execute(text("SET ROLE vcl_analyst"))
        # Every key that could be meant: all locks of one number, and of a number with a hash.
        analyst.execute(text("SELECT pg_advisory_lock(7340000 + n) FROM generate_series(1, 9) n"))
        analyst.execute(
            text("""
            SELECT pg_advisory_lock(7340000 + n, key) FROM generate_series(1, 9) n,
                   unnest(ARRAY[hashtext('film'), hashtext('upload'), 0, 1, 2]) AS key""")
        )
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        assert len(list_claims(connection)) == 1
        held = text("""
            SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()""")
        assert connection.execute(held).scalar() == 0, "a key that anybody can take"


def test_the_analysts_role_reads_everything_and_writes_nothing(database: str) -> None:
    with connect(database).connect() as connection:
        connection.execute(text("SET ROLE vcl_analyst"))
        for name in REPORTS:
            connection.execute(text(f"SELECT * FROM {name}"))
        with pytest.raises(DBAPIError, match="permission denied"):
            connection.execute(text("DELETE FROM claims"))
