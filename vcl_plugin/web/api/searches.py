"""`/api/v1/searches`: ask for searches, follow them, end them.

In: ids of videos and searches. Out: how far a search is, at once, when it moves, or as a stream.
A key with owners sees the searches that it asked for.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from retrieval.database import transaction
from retrieval.errors import NotFound
from retrieval.records import Search, SearchStatus
from retrieval.tasks import enqueue_video
from retrieval.work import searches
from retrieval.work.cancellation import cancel_search
from retrieval.work.messages import Priority
from vcl_plugin.claims.sight import read_visible
from vcl_plugin.web.access import Site, current_site
from vcl_plugin.web.keys import Viewer
from vcl_plugin.web.parameters import After, Here, Limit, Next, Reader, Sender
from vcl_plugin.web.routing import make_router
from vcl_plugin.web.watch import Watch

router = make_router("/searches", "searches")

SearchId = Annotated[str, Path(min_length=1, max_length=200)]
LONGEST_WAIT = 60.0
KEEP_ALIVE = 15.0  # seconds after which a proxy may take a silent stream for dead


class SearchRow(BaseModel):
    """How far a search is."""

    model_config = ConfigDict(from_attributes=True)

    search_id: str
    query_id: str
    query: str = Field(description="title of the upload")
    status: SearchStatus
    reason: str | None
    message: str | None
    pairs_total: int
    pairs_left: int
    pairs_quarantined: int = Field(description="pairs that could not be compared")
    seconds: float | None = Field(description="from the asking to the end")
    asked_by: str | None = Field(description="the key that asked")
    created_at: datetime
    finished_at: datetime | None


class SearchPage(BaseModel):
    searches: list[SearchRow]
    next: Next


class SearchBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    video_id: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description="a video that is known already"
    )
    priority: Priority = Priority.URGENT


def current_watch(request: Request) -> Watch:
    state = request.app.state
    if not hasattr(state, "watch"):
        state.watch = Watch(current_site(request).database)
    watch = state.watch
    assert isinstance(watch, Watch)
    return watch


Watching = Annotated[Watch, Depends(current_watch)]


@router.get("", response_model=SearchPage)
def list_searches(
    viewer: Reader,
    site: Here,
    status: Annotated[list[SearchStatus] | None, Query(description="repeat for several")] = None,
    video: Annotated[str | None, Query(max_length=1000, description="id of the upload")] = None,
    mine: Annotated[bool, Query(description="only what this key asked for")] = False,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Searches, the newest first."""
    asked_by = viewer.name if mine or viewer.owners is not None else None
    with transaction(site.database) as connection:
        page = searches.list_searches(connection, status or (), video, asked_by, limit, after)
    return {"searches": page.rows, "next": page.next}


@router.post("", status_code=201, response_model=SearchRow)
def ask_search(viewer: Sender, site: Here, body: SearchBody, response: Response) -> Any:
    """Search a video that is known already; a new one comes in by `/uploads`."""
    with transaction(site.database) as connection:
        read_visible(connection, body.video_id, viewer.owners, viewer.name)
    search_id = enqueue_video(body.video_id, priority=body.priority, asked_by=viewer.name)
    response.headers["Location"] = f"/api/v1/searches/{search_id}"
    return _read(site, viewer, search_id)


@router.get("/{search_id}", response_model=SearchRow)
async def read_search(
    viewer: Reader,
    site: Here,
    watch: Watching,
    search_id: SearchId,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT, description="seconds to wait for the end of the search")
    ] = 0.0,
) -> Any:
    """A search; with `wait`, at its end or as far as it is by then."""
    search = await run_in_threadpool(_read, site, viewer, search_id)
    deadline = time.monotonic() + wait
    while not search.status.is_final and (left := deadline - time.monotonic()) > 0:
        search = await watch.wait_for_change(search, left)
    return search


@router.get(
    "/{search_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "server-sent events `search`, whose data is a SearchRow; the last one "
            "has a final status",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def follow_search(
    viewer: Reader, site: Here, watch: Watching, search_id: SearchId
) -> StreamingResponse:
    """Every state of a search until its end, as server-sent events."""
    search = await run_in_threadpool(_read, site, viewer, search_id)
    return StreamingResponse(
        _tell(watch, search),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


@router.post("/{search_id}/cancel", response_model=SearchRow)
def end_search(viewer: Sender, site: Here, search_id: SearchId) -> Any:
    """End a search that is under way; what it found stays."""
    with transaction(site.database) as connection:
        _require(connection, viewer, search_id)
        return cancel_search(connection, search_id, viewer.name)


def _read(site: Site, viewer: Viewer, search_id: str) -> Search:
    with transaction(site.database) as connection:
        return _require(connection, viewer, search_id)


def _require(connection: Connection, viewer: Viewer, search_id: str) -> Search:
    """A search that may be seen; one of others answers like one that is not there."""
    search = searches.read_search(connection, search_id)
    if viewer.owners is not None and search.asked_by != viewer.name:
        raise NotFound(f"there is no search {search_id}")
    return search


async def _tell(watch: Watch, search: Search) -> AsyncIterator[str]:
    yield _event(search)
    while not search.status.is_final:
        found = await watch.wait_for_change(search, KEEP_ALIVE)
        yield ": still under way\n\n" if found == search else _event(found)
        search = found


def _event(search: Search) -> str:
    row = SearchRow.model_validate(search).model_dump(mode="json")
    return f"event: search\ndata: {json.dumps(row)}\n\n"
