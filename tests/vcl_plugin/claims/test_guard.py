"""What is left of a match without excluded stretches, and after a later comparison found it again.

Reasons to hold a match that follow from rights and policies are tested with `settlement`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from retrieval.database import connect, transaction
from retrieval.records import Segment, Span
from retrieval.work.pairs import Method
from tests.vcl_plugin.world import add_reference, add_upload, answer, ask, record, segment
from vcl_plugin.claims import assets, rights
from vcl_plugin.claims.claims import decide_claim, list_claims, read_claim
from vcl_plugin.claims.guard import cut_segment
from vcl_plugin.claims.settlement import settle_claims

NEWER = Method("tn-newer", "lite0-test")

WHOLE = Segment(Span(10, 20), Span(100, 120), 0.9)
BACKWARDS = Segment(Span(10, 20), Span(100, 120), 0.9, is_reversed=True)


def test_an_excluded_middle_leaves_both_sides_at_the_pace_of_the_copy() -> None:
    left = cut_segment(WHOLE, [Span(104, 110)])
    assert [each.query for each in left] == [Span(10, 12), Span(15, 20)]
    assert [each.reference for each in left] == [Span(100, 104), Span(110, 120)]


def test_a_reversed_copy_loses_its_end_when_the_reference_loses_its_start() -> None:
    [left] = cut_segment(BACKWARDS, [Span(90, 104)])
    assert (left.query, left.reference) == (Span(10, 18), Span(104, 120))


def test_nothing_is_left_when_everything_is_excluded() -> None:
    assert cut_segment(WHOLE, [Span(0, 110), Span(105, 130)]) == []


@given(st.lists(st.tuples(st.integers(90, 125), st.integers(1, 20)), max_size=4), st.booleans())
def test_each_second_is_kept_unless_it_is_excluded(
    spans: list[tuple[int, int]], is_reversed: bool
) -> None:
    excluded = [Span(start, start + length) for start, length in spans]
    left = cut_segment(BACKWARDS if is_reversed else WHOLE, excluded)
    kept = {
        second
        for each in left
        for second in range(int(each.reference.start), 121)
        if second < each.reference.end
    }
    assert kept == {
        second
        for second in range(100, 120)
        if not any(span.start <= second < span.end for span in excluded)
    }
    assert all(10 <= each.query.start < each.query.end <= 20 for each in left)


def claim_film(connection: Connection, *found: Segment) -> int:
    """An upload claimed for what the older method found of a film; the claim."""
    add_upload(connection, "upload")
    add_reference(connection, "film", "Ana")
    record(connection, "upload", "film", *found)
    [claim] = settle_claims(connection, "upload")
    return claim


def find_later(connection: Connection, *found: Segment, is_empty: bool = False) -> None:
    record(connection, "upload", "film", *found, is_empty=is_empty, method=NEWER)
    settle_claims(connection, "upload")


def shown(connection: Connection) -> list[tuple[float, float]]:
    rows = connection.execute(
        text("SELECT query_start, query_end FROM infringing_segments ORDER BY 1, 2")
    )
    return [(float(row.query_start), float(row.query_end)) for row in rows]


def test_what_newer_weights_find_takes_the_place_of_what_older_ones_found(database: str) -> None:
    with transaction(connect(database)) as connection:
        claim_film(connection, segment(0, 10), segment(50, 58, at=30))
        find_later(connection, segment(1, 12, at=1))
        assert shown(connection) == [(1, 12), (50, 58)], "what was not found again stands"
        [row] = list_claims(connection)
        assert (row["status"], row["seconds"]) == ("potential", 19)
        held = connection.execute(text("SELECT query_start, reason FROM held_segments")).all()
        assert held == [(0, "superseded")], "kept and shown, but claiming nothing"


def test_which_comparison_is_later_does_not_depend_on_which_finished_first(database: str) -> None:
    """While a site is upgraded, old workers still finish what they were asked for before."""
    with transaction(connect(database)) as connection:
        add_upload(connection, "upload")
        add_reference(connection, "film", "Ana")
        ask(connection, "upload", "film")
        find_later(connection, segment(1, 12, at=1))
        answer(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        assert shown(connection) == [(1, 12)]


def test_a_rollback_of_weights_does_not_leave_the_newer_segments_in_front(database: str) -> None:
    with transaction(connect(database)) as connection:
        claim_film(connection, segment(0, 10))
        find_later(connection, segment(1, 12, at=1))
        assert shown(connection) == [(1, 12)]
    with transaction(connect(database)) as connection:
        ask(
            connection, "upload", "film"
        )  # by the older weights: its pair is done, and is asked for
        settle_claims(connection, "upload")
        assert shown(connection) == [(0, 10)]
        held = connection.execute(text("SELECT query_start, reason FROM held_segments")).all()
        assert held == [(1, "superseded")]


@pytest.mark.parametrize(
    ("found", "is_empty", "excluded"),
    [
        ([], False, None),
        ([segment(0, 60)], True, None),  # a black card
        ([segment(0, 30)], False, Span(0, 30)),  # a stretch that proves nothing
        ([segment(90, 91)], False, None),  # another place
        ([segment(0, 20)], False, None),  # a third of it
        ([segment(0, 60, score=0.06)], False, None),  # a guess that no rule looks at
    ],
)
def test_only_what_counts_and_is_found_again_takes_a_confirmed_copys_place(
    database: str, found: list[Segment], is_empty: bool, excluded: Span | None
) -> None:
    with transaction(connect(database)) as connection:
        claim = claim_film(connection, segment(0, 60, at=35))
        decide_claim(connection, claim, "active", "ann")
        if excluded is not None:
            rights.exclude_span(connection, "film", excluded, "ann")
        find_later(connection, *found, is_empty=is_empty)
        assert (0, 60) in shown(connection)
        assert read_claim(connection, claim)["status"] == "active"


def test_a_reference_that_was_removed_still_speaks_after_a_later_comparison(database: str) -> None:
    with transaction(connect(database)) as connection:
        claim = claim_film(connection, segment(0, 40))
        assets.remove_reference(connection, "film")
        find_later(connection, segment(0, 40))
        assert read_claim(connection, claim)["status"] == "potential"
        assert shown(connection) == [(0, 40)]


def test_a_confirmed_claim_keeps_its_seconds_when_the_reference_has_moved_since(
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        claim = claim_film(connection, segment(0, 40))
        decide_claim(connection, claim, "active", "ann")
        assets.remove_reference(connection, "film")
        assets.add_reference(connection, "film", assets.add_asset(connection, "Bo", "Film of Bo"))
        find_later(connection, segment(0, 40))
        seconds = {row["owner"]: row["seconds"] for row in list_claims(connection)}
        assert seconds == {"Ana": 40, "Bo": 40}


def test_a_match_found_twice_by_one_owner_is_not_shared_footage(database: str) -> None:
    with transaction(connect(database)) as connection:
        claim_film(connection, segment(0, 10))
        add_reference(connection, "remake", "Bo")
        record(connection, "upload", "remake", segment(0, 10))
        find_later(connection, segment(0, 9))
        assert shown(connection) == [(0, 9), (0, 10)]
