"""Charts as numbers: where each bar of a picture stands. Templates draw them as SVG.

In: rows of figures. Out: rectangles, ticks and a legend, in the picture's own units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

WIDTH, HEIGHT = 1180.0, 240.0
LEFT, BOTTOM, TOP = 44.0, 22.0, 8.0
HUES = 5  # series of their own; all others are one


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    hue: int
    title: str


@dataclass(frozen=True)
class Stack:
    """Bars on top of each other, a column a week."""

    bars: Sequence[Bar]
    ticks: Sequence[tuple[float, str]]  # height and value
    labels: Sequence[tuple[float, str]]  # place and week
    legend: Sequence[tuple[int, str]] = field(default_factory=tuple)


def stack_weeks(rows: Sequence[Mapping[str, Any]], today: date, weeks: int) -> Stack:
    """Seconds by asset as one column a week, the assets with most of them in hues of their own."""
    totals: dict[str, float] = {}
    for row in rows:
        totals[row["asset"]] = totals.get(row["asset"], 0.0) + row["seconds"]
    named = sorted(totals, key=lambda each: -totals[each])[:HUES]
    this_week = today - timedelta(days=today.weekday())
    days = [this_week - timedelta(weeks=back) for back in reversed(range(weeks))]
    columns: dict[date, dict[int, float]] = {day: {} for day in days}
    for row in rows:
        hue = named.index(row["asset"]) if row["asset"] in named else HUES
        column = columns.get(row["week"])
        if column is not None:
            column[hue] = column.get(hue, 0.0) + row["seconds"]
    top = round_up(max((sum(column.values()) for column in columns.values()), default=0.0))
    tall = HEIGHT - BOTTOM - TOP
    step = (WIDTH - LEFT) / weeks
    bars = []
    for place, day in enumerate(days):
        base = HEIGHT - BOTTOM
        for hue, seconds in sorted(columns[day].items()):
            height = tall * seconds / top
            base -= height
            name = named[hue] if hue < len(named) else "others"
            title = f"{name}, week of {day:%d %b}: {seconds:.0f} s"
            bars.append(Bar(LEFT + place * step + 8, base, step - 16, height, hue, title))
    ticks = [(HEIGHT - BOTTOM - tall * part / 4, write_amount(top * part / 4)) for part in range(5)]
    labels = [(LEFT + (place + 0.5) * step, f"{day:%d %b}") for place, day in enumerate(days)]
    legend = list(enumerate(named)) + ([(HUES, "others")] if len(totals) > HUES else [])
    return Stack(bars, ticks, labels, legend)


def round_up(value: float) -> float:
    """The next number that is easy to read, for the top of a scale.

    >>> round_up(0), round_up(37), round_up(1234)
    (1.0, 40.0, 2000.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def write_amount(value: float) -> str:
    """A number on an axis.

    >>> write_amount(12.0), write_amount(2500.0), write_amount(0.25)
    ('12', '2.5k', '0.25')
    """
    if value >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:g}"
