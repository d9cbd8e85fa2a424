"""The search pages: drop videos, watch how far their searches are, see what was found.

In: files, sent by the page's script to the API. Out: pages of searches and of what each found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from sqlalchemy import Connection

from retrieval.database import transaction
from retrieval.errors import NotFound
from retrieval.records import Search
from retrieval.work import catalogue, searches
from vcl_plugin.claims import queue
from vcl_plugin.claims.queue import ClaimFilter
from vcl_plugin.claims.segments import read_segments
from vcl_plugin.reports.inquiry import HELD
from vcl_plugin.web.access import current_site
from vcl_plugin.web.desk.pages import Here, PageRoute, Reader, render
from vcl_plugin.web.keys import Viewer

router = APIRouter(route_class=PageRoute)

SearchId = Annotated[str, Path(min_length=1, max_length=200)]
SHOWN = 20
# How far a search is in words, and about which share of its way that is.
STEPS = {
    "waiting": ("waits for a worker", 0.05),
    "running": ("is read, described and looked up", 0.3),
    "localizing": ("is compared with its candidates", 0.5),
}


@router.get("/search")
def show_searches(request: Request, viewer: Reader, site: Here) -> Response:
    """Where videos are dropped, and the newest searches."""
    asked_by = None if viewer.owners is None else viewer.name
    with transaction(site.database) as connection:
        page = searches.list_searches(connection, (), None, asked_by, SHOWN)
    return render(
        request,
        viewer,
        "search.html",
        searches=page.rows,
        most_bytes=current_site(request).settings.max_upload_bytes,
    )


@router.get("/searches/{search_id}")
def show_search(request: Request, viewer: Reader, site: Here, search_id: SearchId) -> Response:
    """How far a search is; at its end, what it found."""
    with transaction(site.database) as connection:
        search = searches.read_search(connection, search_id)
        if viewer.owners is not None and search.asked_by != viewer.name:
            raise NotFound(f"there is no search {search_id}")
        query = catalogue.read_video(connection, search.query_id)
        segments = _read_visible_segments(connection, search_id, viewer)
        page = queue.list_queue(
            connection, ClaimFilter(upload=search.query_id), viewer.owners, "seconds", SHOWN
        )
        spans = queue.read_spans(connection, [each["id"] for each in page.claims])
    words, share = _tell_progress(search)
    return render(
        request,
        viewer,
        "found.html",
        search=search,
        video=query,
        words=words,
        share=share,
        segments=segments,
        claims=page.claims,
        spans=spans,
        meanings=HELD,
    )


def _tell_progress(search: Search) -> tuple[str, float]:
    """What a search is at, and about how much of it is done."""
    if search.status not in STEPS:
        return str(search.status), 1.0
    words, share = STEPS[search.status]
    if search.pairs_total and search.status == "localizing":
        done = search.pairs_total - search.pairs_left
        words = f"{words}: {done} of {search.pairs_total}"
        share += (1 - share) * done / search.pairs_total
    return words, share


def _read_visible_segments(
    connection: Connection, search_id: str, viewer: Viewer
) -> Sequence[dict[str, Any]]:
    """What was found in references of the viewer's owners."""
    return [
        each
        for each in read_segments(connection, search_id)
        if viewer.owners is None or each["owner"] in viewer.owners
    ]
