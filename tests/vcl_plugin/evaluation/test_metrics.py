"""The metrics against VCSL's own numbers, and the rules behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcl_plugin.evaluation.metrics import (
    JudgedPair,
    copy_share,
    length_group,
    macro_over_queries,
    matching_average_precision,
    measure_pair,
    share_group,
    speed_group,
    summarize,
    summarize_by,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "vcsl.json").read_text())["metrics"]
CLOSE = 1e-6


def judged(row: dict[str, Any], query: str = "q", **facts: Any) -> JudgedPair:
    return JudgedPair(query, "r", found=row["pred"], truth=row["gt"], **facts)


def golden_pairs() -> list[JudgedPair]:
    return [judged(row, query=f"q_{number % 7}") for number, row in enumerate(GOLDEN["pairs"])]


@pytest.mark.parametrize("number", range(60))
def test_precision_and_recall_of_a_pair_are_vcsl_s(number: int) -> None:
    row = GOLDEN["pairs"][number]
    expected = (row["precision"], row["recall"])
    assert measure_pair(row["pred"], row["gt"]) == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("case", sorted(GOLDEN["special"]))
def test_special_cases_are_vcsl_s(case: str) -> None:
    row = GOLDEN["special"][case]
    expected = (row["precision"], row["recall"])
    assert measure_pair(row["pred"], row["gt"]) == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize(("key", "ratio"), [("micro_ratio1", 1.0), ("micro_ratio0.5", 0.5)])
def test_overall_numbers_are_vcsl_s_with_its_assumed_ratio(key: str, ratio: float) -> None:
    found = summarize(golden_pairs(), copies_per_negative=ratio)
    numbers = [found.recall, found.precision, found.frr, found.far]
    assert numbers == pytest.approx(GOLDEN[key], abs=CLOSE)


def test_overall_recall_and_precision_are_transvcl_s() -> None:
    found = summarize(golden_pairs())
    assert [found.recall, found.precision] == pytest.approx(GOLDEN["transvcl_overall"], abs=CLOSE)


def test_error_rates_count_the_copies_that_are_there() -> None:
    found = summarize(golden_pairs())
    assert found.frr == pytest.approx(8 / GOLDEN["n_pos"])
    assert found.far == pytest.approx(12 / GOLDEN["n_neg"])


def test_macro_numbers_are_vcsl_s() -> None:
    recall, precision = macro_over_queries(golden_pairs())
    assert [recall, precision] == pytest.approx(GOLDEN["macro"][:2], abs=CLOSE)


@pytest.mark.parametrize(
    ("found", "truth", "expected"),
    [
        ([], [], (1.0, 1.0)),
        ([], [[0, 0, 5, 5]], (1.0, 0.0)),
        ([[0, 0, 5, 5]], [], (0.0, 1.0)),
    ],
)
def test_an_empty_side_is_decided_by_rule(
    found: list[list[int]], truth: list[list[int]], expected: tuple[float, float]
) -> None:
    assert measure_pair(found, truth) == expected


def test_right_query_seconds_beside_wrong_reference_seconds_earn_nothing() -> None:
    assert measure_pair([[0, 50, 10, 60]], [[0, 0, 10, 10]]) == (0.0, 0.0)


def test_paper_s_video_f_score_is_the_mean_of_both_acceptances() -> None:
    """Table 3 of the paper: FRR 0.1666 and FAR 0.0173 give 90.19."""
    copies = [
        JudgedPair("q", "r", [[0, 0, 1, 1]] * (i >= 1666), [[0, 0, 1, 1]]) for i in range(10000)
    ]
    others = [JudgedPair("q", "r", [[0, 0, 1, 1]] * (i < 173), []) for i in range(10000)]
    assert round(100 * summarize([*copies, *others]).video_f_score, 2) == 90.19


def test_no_pairs_at_all_raise_nothing() -> None:
    assert summarize([]).pairs == 0
    assert macro_over_queries([]) == (1.0, 1.0)
    assert matching_average_precision([]) == 0.0


def test_perfect_answers_have_perfect_numbers() -> None:
    boxes = [[3, 4, 20, 25], [40, 50, 60, 66]]
    pairs = [JudgedPair("q", "r", boxes, boxes, [0.9, 0.8]), JudgedPair("q", "s", [], [])]
    found = summarize(pairs)
    assert found.f_score == pytest.approx(1, abs=1e-6)
    assert (found.frr, found.far, found.video_f_score) == (0, 0, 1)
    assert matching_average_precision(pairs) == pytest.approx(1)


def test_copy_share_is_of_the_mean_length() -> None:
    pair = JudgedPair("q", "r", [], [[0, 0, 30, 30]], query_frames=50, reference_frames=150)
    assert copy_share(pair) == pytest.approx(0.3)
    assert share_group(pair) == "20-40%"
    assert share_group(JudgedPair("q", "r", [], [], query_frames=9, reference_frames=9)) is None


def test_seconds_copied_twice_count_once_in_the_share() -> None:
    truth = [[0, 0, 50, 50], [0, 50, 50, 100]]
    pair = JudgedPair("q", "r", [], truth, query_frames=100, reference_frames=100)
    assert copy_share(pair) == pytest.approx(0.75)


def test_groups_hold_the_pairs_of_their_key_and_no_others() -> None:
    pairs = [
        JudgedPair("q", "r", [[0, 0, 9, 9]], [[0, 0, 9, 9]], topic="news"),
        JudgedPair("q", "s", [], [[0, 0, 9, 9]], topic="music"),
        JudgedPair("q", "t", [], [], topic=""),
    ]
    groups = summarize_by(pairs, lambda pair: pair.topic)
    assert list(groups) == ["music", "news"]
    assert groups["music"].recall == 0
    assert groups["news"].f_score == pytest.approx(1, abs=1e-6)


def test_average_precision_rewards_the_right_order() -> None:
    right, wrong = [0, 0, 10, 10], [50, 50, 60, 60]
    good = [JudgedPair("q", "r", [right, wrong], [right], [0.9, 0.2])]
    bad = [JudgedPair("q", "r", [right, wrong], [right], [0.2, 0.9])]
    assert matching_average_precision(good) == pytest.approx(1.0)
    assert matching_average_precision(bad) == pytest.approx(0.5)


def test_average_precision_by_hand() -> None:
    """Half of one copy first (precision 1, recall 1/4 of all seconds), then a stray segment of 10 s
    in another pair together with the second copy: 15 of 25 s right, recall 3/4."""
    pairs = [
        JudgedPair("q", "r", [[0, 0, 5, 5]], [[0, 0, 10, 10]], [0.9]),
        JudgedPair("q", "s", [[0, 0, 10, 10]], [[0, 0, 10, 10]], [0.5]),
        JudgedPair("q", "t", [[0, 0, 10, 10]], [], [0.5]),
    ]
    assert matching_average_precision(pairs) == pytest.approx(1 * 0.25 + 15 / 25 * 0.5)


box = st.tuples(*[st.integers(0, 50)] * 2, *[st.integers(1, 30)] * 2).map(
    lambda b: [b[0], b[1], b[0] + b[2], b[1] + b[3]]
)
boxes = st.lists(box, max_size=4)


@given(boxes, boxes)
@settings(max_examples=100, deadline=None)
def test_precision_one_way_is_recall_the_other_way(
    one: list[list[int]], other: list[list[int]]
) -> None:
    assert measure_pair(one, other) == measure_pair(other, one)[::-1]


@given(boxes, boxes)
@settings(max_examples=100, deadline=None)
def test_all_numbers_are_fractions(found: list[list[int]], truth: list[list[int]]) -> None:
    pair = JudgedPair("q", "r", found, truth, [0.5] * len(found))
    assert 0 <= pair.precision <= 1
    assert 0 <= pair.recall <= 1
    assert 0 <= matching_average_precision([pair]) <= 1 + 1e-9


def test_a_pair_is_grouped_by_its_shortest_copy_and_its_least_usual_speed() -> None:
    def pair(*truth: list[float]) -> JudgedPair:
        return JudgedPair("q", "r", [], truth)

    long, fast, slow = [0, 0, 60, 60], [0, 0, 19, 38], [0, 0, 5, 3]
    assert [length_group(pair(each)) for each in (long, fast, slow)] == [
        "60 s-",
        "10-20 s",
        "05-10 s",
    ]
    assert length_group(pair(long, slow)) == "05-10 s"
    assert length_group(pair([0, 0, 4.9, 5])) == "00-05 s"
    assert [speed_group(pair(each)) for each in (long, fast, slow)] == [
        "0.8-1.25",
        "1.25-",
        "0-0.8",
    ]
    assert speed_group(pair(slow, long, fast)) == "1.25-"
    assert length_group(pair()) is speed_group(pair()) is None
