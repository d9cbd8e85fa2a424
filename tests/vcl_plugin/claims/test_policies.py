"""Policies are monotone: a stricter threshold never lets more through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.errors import Refused
from retrieval.records import Segment, Span
from vcl_plugin.claims.policies import ACTIONS, Evidence, Policy, Rule, decide, union_seconds

spans = st.tuples(st.floats(0, 500), st.floats(0.1, 100)).map(lambda at: Span(at[0], at[0] + at[1]))
segments = st.builds(Segment, spans, spans, st.floats(0, 1))
evidences = st.builds(
    Evidence,
    st.dictionaries(st.sampled_from("abc"), st.lists(segments, max_size=5), max_size=3),
    st.floats(1, 1000),
    st.just({"a": 600.0, "b": 50.0, "c": 0.0}),
)
shares = st.floats(0, 1)
rules = st.builds(Rule, st.sampled_from(ACTIONS), st.floats(0, 100), shares, shares, shares)


def _rank(policy: Policy, evidence: Evidence) -> int:
    action = decide(policy, evidence, ["WW"]).get("WW")
    return -1 if action is None else ACTIONS.index(action)


@given(rules, evidences, st.integers(0, 3), st.floats(0, 1))
def test_raising_a_threshold_never_lets_more_through(
    rule: Rule, evidence: Evidence, which: int, more: float
) -> None:
    values = list(rule.thresholds)
    values[which] = values[which] + 50 * more if which == 0 else min(1.0, values[which] + more)
    stricter = Rule(rule.action, *values)
    before, after = Policy("p", (rule,)), Policy("p", (stricter,))
    assert _rank(after, evidence) <= _rank(before, evidence)


@given(rules, rules, evidences)
def test_the_most_restrictive_rule_wins_whatever_their_order(
    one: Rule, other: Rule, evidence: Evidence
) -> None:
    if one.thresholds == other.thresholds and one.action != other.action:
        return
    alone = max(_rank(Policy("p", (rule,)), evidence) for rule in (one, other))
    assert _rank(Policy("p", (one, other)), evidence) == alone
    assert _rank(Policy("p", (other, one)), evidence) == alone


@given(st.lists(spans, max_size=8))
def test_union_never_exceeds_the_sum_nor_what_the_spans_reach(found: list[Span]) -> None:
    union = union_seconds(found)
    assert union <= sum(span.seconds for span in found) + 1e-6
    reach = max((s.end for s in found), default=0) - min((s.start for s in found), default=0)
    assert union <= reach + 1e-6
    assert union >= max((span.seconds for span in found), default=0) - 1e-6


def test_a_rule_for_one_territory_does_nothing_elsewhere() -> None:
    policy = Policy("p", (Rule("block", territories=frozenset({"DE"})), Rule("track", 1.0)))
    evidence = Evidence({"r": [Segment(Span(0, 10), Span(0, 10), 0.9)]}, 10.0, {"r": 10.0})
    assert decide(policy, evidence, ["DE", "FR"]) == {"DE": "block", "FR": "track"}


def test_weak_segments_do_not_lengthen_a_match() -> None:
    weak, strong = (
        Segment(Span(at, at + 10), Span(at, at + 10), s) for at, s in ((0, 0.2), (20, 0.9))
    )
    policy = Policy("p", (Rule("block", min_seconds=15, min_score=0.5),))
    assert decide(policy, Evidence({"r": [weak, strong]}, 60.0), ["WW"]) == {}


def test_rules_that_contradict_each_other_are_refused_with_both_named() -> None:
    with pytest.raises(Refused, match=r"rules 1 and 2 of policy 'p' contradict.*track and block"):
        Policy("p", (Rule("track", 5), Rule("block", 5)))


def test_the_same_thresholds_in_separate_territories_do_not_contradict() -> None:
    Policy(
        "p",
        (
            Rule("track", 5, territories=frozenset({"DE"})),
            Rule("block", 5, territories=frozenset({"FR"})),
        ),
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"action": "delete"}, "'delete' is no action"),
        ({"action": "block", "min_seconds": -1}, "-1 seconds"),
        ({"action": "block", "min_seconds": float("nan")}, "nan seconds"),
        ({"action": "block", "min_seconds": float("inf")}, "inf seconds"),
        ({"action": "block", "min_query_share": 1.2}, "min_query_share is 1.2"),
        ({"action": "block", "min_score": 7}, "min_score is 7"),
    ],
)
def test_an_impossible_rule_is_refused(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        Rule(**arguments)  # type: ignore[arg-type]


def test_a_policy_without_rules_is_refused() -> None:
    with pytest.raises(Refused, match="no rule"):
        Policy("empty", ())
