"""Pages of a list: some rows, and a cursor that says where the next ones begin.

In: rows that were read in a total order, one more than asked for. Out: a page; a cursor's values.
A cursor names its list, so that one of another list, or of another order, is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from retrieval.errors import Refused

MOST = 1000  # rows of a page
LETTERS = 4000  # of a cursor; ids of other engines may be long

Row = TypeVar("Row")


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Some rows of a list, and where the next ones begin; None: there are no more."""

    rows: Sequence[Row]
    next: str | None


def cut_page(
    rows: Sequence[Row], limit: int, kind: str, place: Callable[[Row], Sequence[str | int]]
) -> Page[Row]:
    """A page of at most `limit` rows; that there is one more says that a page follows.

    >>> cut_page([3, 2, 1], 2, "numbers", lambda row: [row]).rows
    [3, 2]
    >>> cut_page([3, 2], 2, "numbers", lambda row: [row]).next is None
    True
    """
    page = rows[:limit]
    is_last = len(rows) <= limit
    return Page(page, None if is_last else write_cursor(kind, *place(page[-1])))


def write_cursor(kind: str, *place: str | int) -> str:
    """Where a page of that list ended. Floats go as text of full precision."""
    written = json.dumps([kind, *place], separators=(",", ":"))
    return base64.urlsafe_b64encode(written.encode()).decode().rstrip("=")


def read_cursor(cursor: str | None, kind: str, *types: type) -> Sequence[Any]:
    """The values of a cursor of that list, each of its type; without a cursor, Nones.

    >>> read_cursor(write_cursor("numbers", 2), "numbers", int), read_cursor(None, "numbers", int)
    ([2], [None])
    """
    if cursor is None:
        return [None] * len(types)
    try:
        raw = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        made_for, *place = json.loads(raw)
        is_right = made_for == kind and len(place) == len(types)
        is_right = is_right and all(map(_fits, place, types))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        is_right = False
    if not is_right:
        raise Refused(
            "the cursor is none of this list in this order; begin again without one",
            code="bad_cursor",
        )
    return place


def _fits(value: object, kind: type) -> bool:
    """Numbers are ids, so they are neither negative nor beyond a bigint; floats come as text."""
    if kind is int:
        return type(value) is int and 0 <= value < 2**63
    if kind is float:
        return isinstance(value, str) and float(value) == float(value)
    return isinstance(value, kind)
