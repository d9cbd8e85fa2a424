"""Access: from a request to who asks, and whether they may.

In: a request with a key, a session's cookie, or a user that a trusted proxy names. Out: a viewer,
or a refusal. A browser's request that changes something must carry the session's token, too.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import Request
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.settings import Settings
from vcl_plugin.web.keys import Viewer, find_viewer
from vcl_plugin.web.problems import WebError
from vcl_plugin.web.sessions import COOKIE, read_session

SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Site:
    """What every request works with: the settings, the engine and its database."""

    settings: Settings
    engine: RetrievalEngine

    @property
    def database(self) -> Engine:
        return self.engine.database


def current_site(request: Request) -> Site:
    site = request.app.state.site
    assert isinstance(site, Site)
    return site


async def current_viewer(request: Request) -> Viewer:
    """Who asks. Without a good key, session or proxy: 401."""
    viewer = await find_current_viewer(request)
    if viewer is None:
        raise WebError(
            "a key is needed: send it as `Authorization: Bearer KEY`; `vcl key add` makes one",
            code="no_access",
            status=401,
            headers={"WWW-Authenticate": "Bearer"},
        )
    return viewer


async def find_current_viewer(request: Request) -> Viewer | None:
    """Who asks, or None: for pages that lead to the login."""
    if hasattr(request.state, "viewer"):
        viewer: Viewer | None = request.state.viewer
        return viewer
    site = current_site(request)
    viewer, is_ambient = await run_in_threadpool(_identify, site, request)
    if viewer is not None and is_ambient and request.method not in SAFE:
        await _check_forgery(request, viewer)
    request.state.viewer = viewer
    request.scope["vcl.viewer"] = viewer
    return viewer


def require(verb: str, all_owners: bool = False) -> Callable[[Request], Awaitable[Viewer]]:
    """A dependency: the viewer, if their role may do `verb`; else 403.

    `all_owners`: what concerns everybody is for those whom no scope confines.
    """

    async def check(request: Request) -> Viewer:
        viewer = await current_viewer(request)
        if not viewer.may(verb):
            raise WebError(
                f"a {viewer.role} may not do this; it needs a role that may {verb}",
                code="forbidden",
                status=403,
            )
        if all_owners and viewer.owners is not None:
            raise WebError(
                "this concerns all owners, and the key is for some of them",
                code="forbidden",
                status=403,
            )
        return viewer

    return check


def is_trusted(address: str | None, proxies: str) -> bool:
    """Whether an address lies in one of the networks, which are separated by commas.

    >>> is_trusted("10.1.2.3", "127.0.0.1, 10.0.0.0/8"), is_trusted("10.1.2.3", "::1")
    (True, False)
    """
    try:
        peer = ipaddress.ip_address(address or "")
        networks = [
            ipaddress.ip_network(each.strip()) for each in proxies.split(",") if each.strip()
        ]
    except ValueError:
        return False
    return any(peer in network for network in networks)


def _identify(site: Site, request: Request) -> tuple[Viewer | None, bool]:
    """The viewer, and whether a browser sends along by itself what names them."""
    settings = site.settings
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    with transaction(site.database) as connection:
        if scheme.lower() == "bearer" and key.strip():
            return find_viewer(connection, key=key.strip()), False
        if settings.auth == "proxy":
            peer = request.client.host if request.client else None
            name = request.headers.get(settings.auth_header)
            if name and is_trusted(peer, settings.trusted_proxies):
                return find_viewer(connection, name=name), True
            return None, False
        word = request.cookies.get(COOKIE)
        return (read_session(connection, word), True) if word else (None, False)


async def _check_forgery(request: Request, viewer: Viewer) -> None:
    """Another site's page can send a browser's cookie along, but cannot know the token."""
    origin = request.headers.get("origin")
    is_foreign = bool(origin) and urlsplit(str(origin)).netloc != request.headers.get("host")
    token = request.headers.get("x-csrf-token", "")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not token and kind == "application/x-www-form-urlencoded":
        token = str((await request.form()).get("csrf_token", ""))
    if is_foreign or not hmac.compare_digest(token.encode(), viewer.csrf.encode()):
        raise WebError(
            "the form lacks the token of this session, or comes from another site; load the page "
            "again",
            code="forged",
            status=403,
        )
