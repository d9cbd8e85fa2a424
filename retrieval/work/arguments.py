"""Arguments of a task, checked at the door: anyone who reaches the broker may have sent them.

In: a function with type hints, and the arguments of a message. Out: the same, bound by name and of
the types the hints say, or `Refused` with a sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import NoneType
from typing import Any, get_args, get_type_hints

from retrieval.errors import Refused

# An id stands in indexes, whose entries PostgreSQL bounds at 2 700 bytes, two ids to an entry.
ID_BYTES = 1_000
INDEXED = ("fingerprint",)
TEXT_BYTES = 20_000
MOST_IDS = 100_000
SHOWN = 60  # characters of a wrong value that an error repeats


def read_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Every argument by its name. A number is taken for an id, as docs/reference/tasks.md says.

    >>> def search(search_id: str, title: str | None = None) -> None: ...
    >>> read_arguments(search, [7], {})
    {'search_id': '7'}
    """
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise _refused(f"the arguments do not fit: {_shorten(str(error))}") from None
    kinds = _kinds_of(function)
    return {name: _read(name, kinds[name], value) for name, value in bound.items()}


@lru_cache(maxsize=32)
def _kinds_of(function: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    hints = get_type_hints(function)
    return {
        name: get_args(hint) if NoneType in get_args(hint) else (hint,)
        for name, hint in hints.items()
    }


def _read(name: str, kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and NoneType in kinds:
        return None
    kind = kinds[0]
    if kind is bool:
        if not isinstance(value, bool):
            raise _refused(f"{name} is {_show(value)}; it must be true or false")
        return value
    if kind is str and name.endswith("_id"):
        return _read_id(name, value)
    if kind is str:
        return _read_text(name, value, ID_BYTES if name in INDEXED else TEXT_BYTES)
    return _read_ids(name, value)


def _read_ids(name: str, value: Any) -> list[str]:
    if isinstance(value, str | int):
        value = [value]  # a lone string would otherwise be taken for a list of letters
    if not isinstance(value, list | tuple):
        raise _refused(f"{name} is {_show(value)}; it must be a list of ids")
    if len(value) > MOST_IDS:
        raise _refused(f"{name} holds {len(value)} ids; send at most {MOST_IDS} in one message")
    return [_read_id(f"{name}[{number}]", each) for number, each in enumerate(value)]


def _read_id(name: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**100:
        value = str(value)
    text = _read_text(name, value, ID_BYTES)
    if not text:
        raise _refused(f"{name} is empty; give the id")
    return text


def _read_text(name: str, value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise _refused(f"{name} is {_show(value)}; it must be a string")
    if "\0" in value:
        raise _refused(f"{name} is {_show(value)}; PostgreSQL keeps no NUL character, leave it out")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise _refused(f"{name} is {_show(value)}, which is no valid Unicode") from None
    if size > most:
        raise _refused(f"{name} has {size} bytes ({_show(value)}); at most {most} are kept")
    return value


def _refused(message: str) -> Refused:
    return Refused(message, code="bad_arguments")


def _show(value: Any) -> str:
    """The value on one line, short, and in plain letters: it may be made to spoil a log."""
    if isinstance(value, dict | list | tuple | set):
        return f"a {type(value).__name__} of {len(value)}"
    # A number of a million digits is refused by its own repr.
    if isinstance(value, int) and abs(value) >= 10**100:
        return "a number of over a hundred digits"
    return _shorten(ascii(value[: SHOWN + 1] if isinstance(value, str) else value))


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
