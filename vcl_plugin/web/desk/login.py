"""Login and logout: a key becomes a session of a browser, in a cookie that no script reads.

In: a key. Out: a session, or the reason why there is none.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from retrieval.database import transaction
from vcl_plugin.web.access import Site, find_current_viewer
from vcl_plugin.web.desk.pages import Anyone, Here, PageRoute, local_path, render
from vcl_plugin.web.keys import find_viewer
from vcl_plugin.web.problems import WebError
from vcl_plugin.web.sessions import COOKIE, HOURS, close_session, open_session

router = APIRouter(route_class=PageRoute)


@router.get("/login")
async def show_login(request: Request, next: str = "/claims") -> Response:
    if await find_current_viewer(request) is not None:
        return RedirectResponse(local_path(next), 303)
    return await run_in_threadpool(
        render, request, None, "login.html", next=local_path(next), failure=None
    )


@router.post("/login")
def log_in(
    request: Request,
    site: Here,
    key: Annotated[str, Form(max_length=500)] = "",
    next: Annotated[str, Form(max_length=4000)] = "/claims",
) -> Response:
    _refuse_foreign(request)
    word = _begin_session(site, key.strip())
    if word is None:
        failure = "This key opens nothing: it is mistyped, or was revoked."
        return render(
            request, None, "login.html", status=401, next=local_path(next), failure=failure
        )
    response = RedirectResponse(local_path(next), 303)
    is_secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(
        COOKIE, word, max_age=HOURS * 3600, httponly=True, samesite="lax", secure=is_secure
    )
    return response


@router.post("/logout")
def log_out(request: Request, site: Here, viewer: Anyone) -> Response:
    word = request.cookies.get(COOKIE)
    if word:
        with transaction(site.database) as connection:
            close_session(connection, word)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


def _begin_session(site: Site, key: str) -> str | None:
    with transaction(site.database) as connection:
        viewer = find_viewer(connection, key=key) if key else None
        return None if viewer is None else open_session(connection, viewer)


def _refuse_foreign(request: Request) -> None:
    """Another site must not log a browser in with a key of its own choice."""
    origin = request.headers.get("origin")
    if origin and urlsplit(origin).netloc != request.headers.get("host"):
        raise WebError(
            "this login comes from another site; open the desk itself", code="forged", status=403
        )
