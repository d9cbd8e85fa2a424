"""Routes of the API: answers carry an ETag, and a POST that is sent again is done once.

In: a request. Out: the answer of its endpoint; 304 where the caller has it already, or the answer
of the first time where a POST carries the same `Idempotency-Key`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from sqlalchemy import Engine, text
from starlette.concurrency import run_in_threadpool

from retrieval.database import transaction
from vcl_plugin.web.access import current_site, current_viewer
from vcl_plugin.web.problems import RESPONSES, WebError

HEADER = "Idempotency-Key"
LETTERS = 200
HOURS = 24
STREAMED = ("multipart/", "application/octet-stream")

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ApiRoute(APIRoute):
    """A route with ETags on what is read, and idempotency of what is posted."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            if request.method == "POST" and HEADER in request.headers:
                return await _answer_once(request, handle)
            response = await handle(request)
            return _tag(request, response) if request.method == "GET" else response

        return answer


def make_router(prefix: str, tag: str) -> APIRouter:
    """A router of the API: typed problems, ETags, idempotency."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=ApiRoute, responses=RESPONSES)


def write_etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _tag(request: Request, response: Response) -> Response:
    """Name what is answered by its content; nothing of it is sent to whoever has it."""
    body = getattr(response, "body", None)
    if response.status_code != 200 or not isinstance(body, bytes):
        return response
    tag = response.headers.get("etag") or write_etag(body)
    response.headers["etag"] = tag
    known = request.headers.get("if-none-match", "")
    if tag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers={"etag": tag})
    return response


async def _answer_once(request: Request, handle: Handler) -> Response:
    viewer = await current_viewer(request)
    key = request.headers[HEADER]
    if not 1 <= len(key) <= LETTERS:
        raise WebError(
            f"{HEADER} has {len(key)} letters; give it 1 to {LETTERS}",
            code="bad_arguments",
            status=422,
        )
    database = current_site(request).database
    digest = await _digest(request)
    known = await run_in_threadpool(_begin, database, viewer.name, key, digest)
    if known is not None:
        return known
    try:
        response = await handle(request)
    except BaseException:
        await run_in_threadpool(_forget, database, viewer.name, key)
        raise
    await run_in_threadpool(_keep, database, viewer.name, key, response)
    return response


async def _digest(request: Request) -> str:
    """What was asked for. The bytes of an upload are not waited for: its length stands for them."""
    kind = request.headers.get("content-type", "")
    if kind.startswith(STREAMED):
        body = request.headers.get("content-length", "").encode()
    else:
        body = await request.body()
    head = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    return hashlib.sha256(head + body).hexdigest()


def _begin(database: Engine, viewer: str, key: str, digest: str) -> Response | None:
    """Take a key for this request, or give the answer that it had."""
    with transaction(database) as connection:
        connection.execute(
            text("""
            DELETE FROM idempotency_keys
            WHERE created_at < now() - :hours * interval '1 hour'"""),
            {"hours": HOURS},
        )
        taken = connection.execute(
            text("""
            INSERT INTO idempotency_keys (viewer, key, request)
            VALUES (:viewer, :key, :request) ON CONFLICT DO NOTHING"""),
            {"viewer": viewer, "key": key, "request": digest},
        ).rowcount
        if taken:
            return None
        row = connection.execute(
            text("SELECT * FROM idempotency_keys WHERE viewer = :viewer AND key = :key"),
            {"viewer": viewer, "key": key},
        ).one()
    if row.request != digest:
        raise WebError(
            f"{HEADER} {key!r} was used for another request; give each a key of its own",
            code="idempotency_mismatch",
            status=422,
        )
    if row.status is None:
        raise WebError(
            f"the request with {HEADER} {key!r} is under way; ask again in a moment",
            code="idempotency_busy",
            status=409,
            headers={"Retry-After": "1"},
        )
    return Response(
        bytes(row.body), row.status, {"Idempotent-Replayed": "true"}, media_type=row.media_type
    )


def _keep(database: Engine, viewer: str, key: str, response: Response) -> None:
    body = getattr(response, "body", None)
    if response.status_code >= 500 or not isinstance(body, bytes):
        _forget(database, viewer, key)
        return
    with transaction(database) as connection:
        connection.execute(
            text("""
            UPDATE idempotency_keys SET status = :status, media_type = :media_type, body = :body
            WHERE viewer = :viewer AND key = :key"""),
            {
                **{"viewer": viewer, "key": key, "status": response.status_code, "body": body},
                "media_type": response.headers.get("content-type"),
            },
        )


def _forget(database: Engine, viewer: str, key: str) -> None:
    """A request that failed may be sent again with its key."""
    with transaction(database) as connection:
        connection.execute(
            text("DELETE FROM idempotency_keys WHERE viewer = :viewer AND key = :key"),
            {"viewer": viewer, "key": key},
        )
