"""One value of a table: as JSON and CSV know it, as a person reads it, with nothing that acts.

In: a value as the database gives it. Out: a plain value, or text that is safe to print.
Imports nothing heavy, for every command prints by it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def is_numeric(column: Iterable[Any]) -> bool:
    """Whether a column holds numbers, so that they should stand under one another."""
    values = [value for value in column if value is not None]
    return bool(values) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values
    )


def plain(value: Any) -> Any:
    """A database value as JSON and CSV know it."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value


def shown(value: Any) -> str:
    """A database value as a person reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        # The database's clock has a zone and each reader another; all times shown are UTC's.
        return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M")
    if isinstance(value, list | tuple):
        return " ".join(shown(each) for each in value)
    if isinstance(value, Decimal | float):
        return f"{float(value):.2f}".rstrip("0").rstrip(".")
    return visible(str(value))


def visible(text: str, keep: str = "") -> str:
    r"""The text with every character seen that would act instead: on a terminal, on the reader.

    Uploaders choose titles; one could move the cursor, or turn "gpj.exe" round.

    >>> visible("a\x1b[2Jb"), visible("\u202egpj.exe")
    ('a\\x1b[2Jb', '\\u202egpj.exe')
    """
    return "".join(
        each.encode("unicode_escape").decode() if _acts(each) and each not in keep else each
        for each in text
    )


def _acts(character: str) -> bool:
    """Control and format characters and half ones; joiners are part of words and of emoji."""
    category = unicodedata.category(character)
    return category in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\u200c\u200d"
