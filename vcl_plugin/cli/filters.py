"""The filters of claims as options: the same for a list and for a decision about all of them.

In: a command that takes `wanted`. Out: the command with an option for each field of the filter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any

import typer

from vcl_plugin.claims.claims import TRANSITIONS
from vcl_plugin.claims.policies import ACTIONS
from vcl_plugin.claims.queue import ClaimFilter

_HELP = {
    "status": f"Only of this status, repeat it: {', '.join(TRANSITIONS)}.",
    "owner": "Only this owner's.",
    "asset": "Only on this asset: number or title.",
    "action": f"Only with this action: {', '.join(ACTIONS)}.",
    "min_age": "At least so many days old.",
    "max_age": "At most so many days old.",
    "min_seconds": "At least so many infringing seconds.",
    "max_seconds": "At most so many infringing seconds.",
    "min_score": "With at least this score.",
    "max_score": "With at most this score.",
    "text": "Part of a title, or of an asset's or uploader's name.",
    "upload": "On this upload: the platform's id, URL, or the video's id.",
    "assignee": "That this person looks at.",
}
_NUMBERS = tuple(name for name in _HELP if name.startswith(("min_", "max_")))


def takes_filter(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a filter; it gets them as `wanted`."""
    own = inspect.signature(command, eval_str=True)
    options = [_option(each.name) for each in fields(ClaimFilter)]
    names = [option.name for option in options]

    @wraps(command)
    def filtered(**values: Any) -> None:
        given = {name: values.pop(name) for name in names}
        for status in given["status"] or ():
            if status not in TRANSITIONS:
                raise typer.BadParameter(f"{status!r} is none of {', '.join(TRANSITIONS)}")
        wanted = ClaimFilter(**{**given, "status": tuple(given["status"] or ())})
        command(wanted=wanted, **values)

    kept = [each for name, each in own.parameters.items() if name != "wanted"]
    parameters = [
        *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in kept),
        *options,
    ]
    filtered.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    filtered.__annotations__ = {each.name: each.annotation for each in parameters}
    return filtered


def _option(name: str) -> inspect.Parameter:
    kind: Any = list[str] | None if name == "status" else str | None
    if name in _NUMBERS:
        kind = float | None
    words = [f"--{name.replace('_', '-')}", *(["-s"] if name == "status" else [])]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, typer.Option(*words, help=_HELP[name])],
    )
