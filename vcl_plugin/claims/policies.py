"""Policies: what an owner wants done with a match, as rules over facts.

In: the segments of one asset in one upload. Out: an action per territory, or none.
Pure, knows no database.

A rule applies when every threshold of it is met by the segments that reach its score. Where several
apply, the most restrictive action wins: block, then review (nothing happens before a person has
looked), then monetize, then track.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from retrieval.errors import Refused
from retrieval.records import Segment, Span

ACTIONS = ("track", "monetize", "review", "block")  # ever more restrictive
WORLD = "WW"
# What people call a rule's thresholds.
FIELDS = {
    "seconds": "min_seconds",
    "query-share": "min_query_share",
    "reference-share": "min_reference_share",
    "score": "min_score",
}


@dataclass(frozen=True)
class Rule:
    """An action and the least a match must be for it; no territories means all of them."""

    action: str
    min_seconds: float = 0.0
    min_query_share: float = 0.0
    min_reference_share: float = 0.0
    min_score: float = 0.0
    territories: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise Refused(f"{self.action!r} is no action; use one of {', '.join(ACTIONS)}")
        if not 0 <= self.min_seconds < math.inf:
            raise Refused(f"a match cannot last {self.min_seconds} seconds; use 0 or more")
        for name in ("min_query_share", "min_reference_share", "min_score"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise Refused(f"{name} is {value}; it must be a fraction between 0 and 1")

    def __str__(self) -> str:
        """As `vcl policy add` takes it.

        >>> str(Rule("block", min_seconds=30, territories=frozenset({"FR", "DE"})))
        'block seconds=30 in=DE,FR'
        """
        values = [(key, getattr(self, name)) for key, name in FIELDS.items()]
        words = [self.action, *(f"{key}={value:g}" for key, value in values if value)]
        if self.territories:
            words.append(f"in={','.join(sorted(self.territories))}")
        return " ".join(words)

    @property
    def thresholds(self) -> tuple[float, float, float, float]:
        return (self.min_seconds, self.min_query_share, self.min_reference_share, self.min_score)


@dataclass(frozen=True)
class Policy:
    """Named rules; two that ask for the same and want different things are refused."""

    name: str
    rules: tuple[Rule, ...]
    version: int = field(default=0, compare=False)  # 0: not written down yet

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise Refused("the name of a policy must not be empty")
        if not self.rules:
            raise Refused(f"policy {self.name!r} has no rule, so it could never act")
        for number, one in enumerate(self.rules, start=1):
            for later, other in enumerate(self.rules[number:], start=number + 1):
                is_shared = not one.territories or not other.territories
                is_shared = is_shared or bool(one.territories & other.territories)
                if one.thresholds == other.thresholds and is_shared and one.action != other.action:
                    raise Refused(
                        f"rules {number} and {later} of policy {self.name!r} contradict each "
                        f"other: the same match would be {one.action} and {other.action}"
                    )


@dataclass(frozen=True)
class Evidence:
    """Everything one asset matches in one upload: segments by reference, and lengths."""

    segments: Mapping[str, Sequence[Segment]]  # reference id -> segments
    query_seconds: float
    reference_seconds: Mapping[str, float] = field(default_factory=dict)
    query: str = ""  # title of the upload


def name_territories(policy: Policy, owned: Iterable[str]) -> list[str]:
    """Where a policy is to be asked: in each territory owned, and in each that a rule names where
    the world is owned, since that has it too.

    >>> name_territories(Policy("p", (Rule("block", territories=frozenset({"DE"})),)), ["WW"])
    ['DE', 'WW']
    """
    wanted = set(owned)
    if WORLD in wanted:
        wanted = wanted.union(*(rule.territories for rule in policy.rules))
    return sorted(wanted)


def decide(policy: Policy, evidence: Evidence, territories: Iterable[str]) -> dict[str, str]:
    """Territory to action, for the territories in which some rule applies.

    >>> match = [Segment(Span(0, 30), Span(5, 35), 0.9)]
    >>> decide(Policy("p", (Rule("block", min_seconds=20),)), Evidence({"r": match}, 60.0), ["WW"])
    {'WW': 'block'}
    """
    applying = list_applying(policy, evidence)
    decided: dict[str, str] = {}
    for territory in territories:
        actions = [
            rule.action
            for rule in applying
            if not rule.territories or territory in rule.territories
        ]
        if actions:
            decided[territory] = most_restrictive(actions)
    return decided


def list_applying(policy: Policy, evidence: Evidence) -> list[Rule]:
    """The rules whose every threshold is met, wherever they count."""
    return [rule for rule in policy.rules if _applies(rule, evidence)]


def lowest_score(policies: Iterable[Policy], evidence: Evidence) -> float:
    """The least score at which a segment counts: that of the rules that apply, else of all.

    >>> match = [Segment(Span(0, 30), Span(5, 35), 0.5)]
    >>> rules = (Rule("block", min_score=0.8), Rule("track", min_score=0.4), Rule("review", 99))
    >>> lowest_score([Policy("p", rules)], Evidence({"r": match}, 60.0))
    0.4
    """
    policies = list(policies)
    rules = [rule for policy in policies for rule in list_applying(policy, evidence)]
    rules = rules or [rule for policy in policies for rule in policy.rules]
    return min(rule.min_score for rule in rules)


def most_restrictive(actions: Iterable[str]) -> str:
    return max(actions, key=ACTIONS.index)


def say_actions(decided: Mapping[str, str]) -> str:
    """What happens where, the most restrictive first and the rest of the world last.

    >>> say_actions({"WW": "monetize", "FR": "block", "DE": "block"})
    'block in DE, FR; monetize elsewhere'
    >>> say_actions({"WW": "track", "DE": "track"})
    'track'
    """
    world = decided.get(WORLD)
    named = {place: action for place, action in decided.items() if action != world}
    words = [
        f"{action} in {', '.join(sorted(place for place in named if named[place] == action))}"
        for action in sorted(set(named.values()), key=ACTIONS.index, reverse=True)
    ]
    if world is not None:
        words.append(f"{world} elsewhere" if named else world)
    return "; ".join(words)


def union_seconds(spans: Iterable[Span]) -> float:
    """Seconds covered by at least one span.

    >>> union_seconds([Span(0, 10), Span(5, 12), Span(20, 21)])
    13.0
    """
    total, reached = 0.0, 0.0
    for span in sorted(spans):
        if span.end > reached:
            total += span.end - max(span.start, reached)
            reached = span.end
    return total


def _applies(rule: Rule, evidence: Evidence) -> bool:
    strong = {
        reference: [each for each in segments if each.score >= rule.min_score]
        for reference, segments in evidence.segments.items()
    }
    if not any(strong.values()):
        return False
    seconds = union_seconds(each.query for found in strong.values() for each in found)
    query_share = seconds / evidence.query_seconds if evidence.query_seconds else 0.0
    reference_share = max(
        union_seconds(each.reference for each in found) / evidence.reference_seconds[reference]
        if evidence.reference_seconds.get(reference)
        else 0.0
        for reference, found in strong.items()
    )
    return (
        seconds >= rule.min_seconds
        and query_share >= rule.min_query_share
        and reference_share >= rule.min_reference_share
    )


def explain(decided: Mapping[str, str], policies: Mapping[str, Policy], evidence: Evidence) -> str:
    """Why a claim does what it does, with the rules that decide somewhere: a policy may have
    others by the time somebody asks.
    """
    whys = []
    for policy in dict.fromkeys(policies[each] for each in decided):
        places = [each for each in decided if policies[each] == policy]
        rules = [
            str(rule)
            for rule in list_applying(policy, evidence)
            if any(
                decided[place] == rule.action
                and (not rule.territories or place in rule.territories)
                for place in places
            )
        ]
        whys.append(f"policy {policy.name}: {'; '.join(rules)}")
    if len(set(decided.values())) == 1:
        return ", ".join(whys)
    return f"{say_actions(decided)} ({', '.join(whys)})"
