"""Pages: templates with everything escaped, sent compressed, with errors as pages of their own.

In: a template and its values. Out: HTML. Whatever acts in a text, such as a mark that turns it
round, is made visible. Without a login a page leads to the login.
"""

from __future__ import annotations

import gzip
import re
import unicodedata
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from retrieval.database import transaction
from retrieval.errors import RetrievalError
from vcl_plugin.claims.decisions import UNDO_SECONDS, find_undoable
from vcl_plugin.reports.cells import shown
from vcl_plugin.reports.reports import show_visibly
from vcl_plugin.web.access import Site, current_site, current_viewer, require
from vcl_plugin.web.desk.files import address_of
from vcl_plugin.web.keys import Viewer
from vcl_plugin.web.problems import status_of

LEAST_SQUEEZED = 1000  # bytes; below, compressing gains nothing
UNTITLED = "(no title)"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Here = Annotated[Site, Depends(current_site)]
Reader = Annotated[Viewer, Depends(require("read"))]
Reviewer = Annotated[Viewer, Depends(require("decide"))]
Anyone = Annotated[Viewer, Depends(current_viewer)]


class PageRoute(APIRoute):
    """A route whose answers are pages, its errors too."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                response = await handle(request)
            except RetrievalError as error:
                response = answer_error(request, error)
            except RequestValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"][1:]))
                response = _write_error(request, 422, "bad_arguments", f"{where}: {first['msg']}")
            return squeeze(request, response)

        return answer


def answer_error(request: Request, error: RetrievalError) -> Response:
    """A page that says what went wrong; without a login, the way to it."""
    if error.code != "no_access":
        return _write_error(request, status_of(error), error.code, str(error))
    if request.headers.get("hx-request"):
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    back = f"?next={quote(here, safe='')}" if request.method == "GET" and here != "/" else ""
    return RedirectResponse(f"/login{back}", 303)


def squeeze(request: Request, response: Response) -> Response:
    """The answer in fewer bytes, where the browser takes them."""
    body = getattr(response, "body", b"")
    accepted = request.headers.get("accept-encoding", "")
    if (
        len(body) < LEAST_SQUEEZED
        or "gzip" not in accepted
        or "content-encoding" in response.headers
    ):
        return response
    response.body = gzip.compress(body, 6, mtime=0)
    response.headers["content-length"] = str(len(response.body))
    response.headers["content-encoding"] = "gzip"
    response.headers["vary"] = "Accept-Encoding"
    return response


def render(
    request: Request, viewer: Viewer | None, template: str, status: int = 200, **values: Any
) -> HTMLResponse:
    """A page for that viewer, with what they decided last as long as it can be taken back."""
    undoable = None
    if viewer is not None and viewer.may("decide"):
        with transaction(current_site(request).database) as connection:
            undoable = find_undoable(connection, viewer.name)
    page = TEMPLATES.get_template(template).render(
        viewer=viewer,
        path=request.url.path,
        here=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        undoable=undoable,
        undo_seconds=int(UNDO_SECONDS),
        **values,
    )
    return HTMLResponse(page, status)


def local_path(address: str | None, fallback: str = "/claims") -> str:
    r"""A page of ours to go on to; what leads elsewhere is not followed.

    >>> local_path("/claims?status=all"), local_path("//evil.example"), local_path("/\\evil")
    ('/claims?status=all', '/claims', '/claims')
    """
    is_ours = re.fullmatch(r"/(?![/\\])[!-\[\]-~]*", address or "") is not None
    return str(address) if is_ours else fallback


def write_query(values: Mapping[str, Any], **changes: Any) -> str:
    """The query of an address; what is empty or None is left out.

    >>> write_query({"status": "all", "text": ""}, sort="newest")
    '?status=all&sort=newest'
    """
    kept = {name: value for name, value in {**values, **changes}.items() if value not in (None, "")}
    return f"?{urlencode(kept)}" if kept else "?"


def name_title(title: str | None) -> str:
    r"""A title as it can be read, or the word that there is none to read.

    >>> name_title(" \u202e "), name_title("Harbour")
    ('(no title)', 'Harbour')
    """
    has_letters = any(unicodedata.category(each)[0] not in "CZ" for each in title or "")
    return str(title) if has_letters else UNTITLED


def write_clock(seconds: float | None, digits: int = 0) -> str:
    """Seconds as a player shows them.

    >>> write_clock(75.26, 1), write_clock(3725), write_clock(None)
    ('1:15.3', '1:02:05', '–')
    """
    if seconds is None:
        return "–"
    scale = 10**digits
    whole, rest = divmod(round(seconds * scale), scale)
    hours, minutes, left = whole // 3600, whole // 60 % 60, whole % 60
    clock = f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
    return f"{clock}.{rest:0{digits}}" if digits else clock


def write_age(moment: datetime, now: datetime | None = None) -> str:
    """How long ago something was, in one unit.

    >>> write_age(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, 5, tzinfo=UTC))
    '2 days'
    """
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' * (count > 1)}"
    return "moments"


def write_count(number: float) -> str:
    """A number with its thousands apart.

    >>> write_count(12345.6)
    '12\u202f346'
    """
    return f"{number:,.0f}".replace(",", "\u202f")


def _write_error(request: Request, status: int, code: str, message: str) -> Response:
    viewer = getattr(request.state, "viewer", None)
    page = TEMPLATES.get_template("error.html").render(
        **{"viewer": viewer, "path": request.url.path, "here": "/claims", "undoable": None},
        **{"status": status, "code": code, "message": message, "undo_seconds": 0},
    )
    return HTMLResponse(page, status)


def _make_templates() -> Environment:
    templates = Environment(
        finalize=show_visibly,
        loader=PackageLoader("vcl_plugin.web.desk"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        named=name_title, clock=write_clock, age=write_age, shown=shown, count=write_count
    )
    templates.globals.update(static=address_of, query=write_query)
    return templates


TEMPLATES = _make_templates()
