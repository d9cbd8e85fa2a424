"""The claim's page: both films locked to each other, all that is known, and the decision.

In: the number of a claim, and the queue that it is looked at from. Out: its page; after a decision
the page of the next claim.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Path, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import Connection, text
from starlette.background import BackgroundTask

from retrieval.database import transaction
from retrieval.errors import Moved, RetrievalError
from retrieval.records import Segment
from retrieval.work import pairs
from retrieval.work.catalogue import read_video
from vcl_plugin.claims import decisions, queue
from vcl_plugin.claims.claims import REASONS, TRANSITIONS
from vcl_plugin.claims.decisions import VERBS
from vcl_plugin.claims.queue import ClaimFilter
from vcl_plugin.reports.evidence import LINE, Case, read_case
from vcl_plugin.reports.inquiry import HELD
from vcl_plugin.web.access import Site
from vcl_plugin.web.api.media import previews_of
from vcl_plugin.web.desk.pages import Here, PageRoute, Reader, Reviewer, render, write_query
from vcl_plugin.web.desk.queue import Wanted, make_decision, read_wanted
from vcl_plugin.web.keys import Viewer

log = logging.getLogger(__name__)
router = APIRouter(route_class=PageRoute)

ClaimId = Annotated[int, Path(ge=1, lt=2**63)]
Word = Annotated[str, Form(max_length=4000)]
MOMENTS = 8  # frame pairs of the strip, shared by all segments
OTHERS = 8  # claims that are listed beside this one


@router.get("/claims/{claim_id}")
def show_claim(request: Request, viewer: Reader, site: Here, claim_id: ClaimId) -> Response:
    return _show(request, viewer, site, claim_id)


@router.post("/claims/{claim_id}/decisions")
def decide_claim(
    request: Request,
    viewer: Reviewer,
    site: Here,
    claim_id: ClaimId,
    verb: Word,
    reason: Word = "",
    note: Word = "",
    expected: Word = "",
) -> Response:
    """Decide a claim and go on to the next one; one that moved meanwhile is shown anew."""
    wanted = read_wanted(request.query_params)
    decision = make_decision(verb, viewer.name, reason, note, expected)
    try:
        with transaction(site.database) as connection:
            following = _find_next(connection, claim_id, wanted, viewer)
            decisions.decide(connection, claim_id, decision, viewer.owners)
    except Moved as error:
        return _show(request, viewer, site, claim_id, failure=str(error), status=409)
    query = write_query(wanted.values)
    return RedirectResponse(f"/claims/{following}{query}" if following else f"/claims{query}", 303)


@router.post("/claims/{claim_id}/notes")
def add_note(
    request: Request, viewer: Reviewer, site: Here, claim_id: ClaimId, note: Word
) -> Response:
    with transaction(site.database) as connection:
        decisions.add_note(connection, claim_id, viewer.name, note, viewer.owners)
    query = write_query(read_wanted(request.query_params).values)
    return RedirectResponse(f"/claims/{claim_id}{query}#history", 303)


@router.get("/claims/{claim_id}/more")
def explain_more(request: Request, viewer: Reader, site: Here, claim_id: ClaimId) -> Response:
    """Why not more: what else of the upload was looked at, and why it claims nothing here."""
    with transaction(site.database) as connection:
        claim = queue.read_queued(connection, claim_id, viewer.owners)
        held = _list_held(connection, claim)
        compared = _list_compared(connection, claim)
    return render(
        request, viewer, "more.html", claim=claim, held=held, compared=compared, meanings=HELD
    )


def _show(
    request: Request,
    viewer: Viewer,
    site: Site,
    claim_id: int,
    failure: str | None = None,
    status: int = 200,
) -> Response:
    wanted = read_wanted(request.query_params)
    with transaction(site.database) as connection:
        claim = decisions.read_history(connection, claim_id, viewer.owners)
        case = read_case(connection, claim_id)
        following = _find_next(connection, claim_id, wanted, viewer)
        left = queue.count_queue(connection, wanted.filter, viewer.owners)
        same_upload = _list_others(
            connection, ClaimFilter(upload=claim["query_id"]), viewer, claim_id
        )
        same_asset = _list_others(
            connection, ClaimFilter(asset=str(claim["asset_id"])), viewer, claim_id
        )
    statuses = wanted.filter.status or tuple(TRANSITIONS)
    segments = number_segments(case)
    response = render(
        request,
        viewer,
        "claim.html",
        status=status,
        claim=claim,
        case=case,
        segments=segments,
        lines=[{name: row[name] for name in ("match", *LINE)} for row in segments],
        moments=choose_moments(case),
        thumbnail=_address_thumbnails(case),
        following=following,
        left=sum(left[each] for each in statuses),
        wanted=wanted,
        same_upload=same_upload,
        same_asset=[each for each in same_asset if each["asset_id"] == claim["asset_id"]],
        history=_join_history(claim),
        verbs=[verb for verb in VERBS if VERBS[verb] in TRANSITIONS[claim["status"]]],
        reasons=REASONS,
        failure=failure,
    )
    if following is not None:
        response.background = BackgroundTask(_warm, site, following)
    return response


def _warm(site: Site, claim_id: int) -> None:
    """Make the thumbnails of a claim before somebody looks at it; where it fails, they see why."""
    previews = previews_of(site.settings)
    try:
        with transaction(site.database) as connection:
            case = read_case(connection, claim_id)
            videos = {each: read_video(connection, each) for each in list_pictured(case)}
        for video_id, seconds in list_pictured(case).items():
            previews.make_thumbnails(videos[video_id], seconds)
    except RetrievalError as error:
        log.info("no thumbnails of claim %d ahead: %s", claim_id, error)


def number_segments(case: Case) -> list[dict[str, Any]]:
    """Every segment of a case, in the order of the upload, with the number of its reference."""
    rows = [
        {"match": number, **row}
        for number, each in enumerate(case.matches)
        for row in each.segments
    ]
    return sorted(rows, key=lambda row: (row["query_start"], row["match"]))


def choose_moments(case: Case, most: int = MOMENTS) -> list[dict[str, Any]]:
    """Seconds of both films that show the same, spread over all segments by their length."""
    segments = number_segments(case)
    total = sum(row["query_end"] - row["query_start"] for row in segments)
    found: list[dict[str, Any]] = []
    for number, row in enumerate(segments):
        segment = Segment.from_dict(row)
        count = max(1, round(most * segment.query.seconds / total))
        for place in range(count):
            at = segment.query.start + segment.query.seconds * (place + 0.5) / count
            found.append(
                {
                    "segment": number,
                    "query": round(at, 1),
                    "reference": round(segment.line.reference_at(at), 1),
                    "reference_id": case.matches[row["match"]].reference.id,
                }
            )
    step = max(1, -(-len(found) // most))
    return found[::step]


def list_pictured(case: Case) -> dict[str, list[float]]:
    """By video, the seconds of which the page of a case shows thumbnails."""
    found: dict[str, list[float]] = {case.query.id: []}
    for row in number_segments(case)[:1]:
        found[case.query.id].append(row["query_start"])
        found[case.matches[0].reference.id] = [row["reference_start"]]
    for each in choose_moments(case):
        found[case.query.id].append(each["query"])
        found.setdefault(each["reference_id"], []).append(each["reference"])
    return found


def _address_thumbnails(case: Case) -> Callable[[str, float], str]:
    """Where a thumbnail is. Each names those beside it, so that one decoder makes all of a film."""
    pictured = list_pictured(case)

    def address(video_id: str, second: float) -> str:
        values = {"video": video_id, "second": second, "beside": pictured.get(video_id, [])}
        return f"/api/v1/media/thumbnail?{urlencode(values, doseq=True)}"

    return address


def _find_next(connection: Connection, claim_id: int, wanted: Wanted, viewer: Viewer) -> int | None:
    """The claim behind this one in the queue that it is looked at from."""
    row = queue.read_queued(connection, claim_id, viewer.owners)
    after = queue.cursor_after(row, wanted.sort)
    page = queue.list_queue(connection, wanted.filter, viewer.owners, wanted.sort, 1, after)
    return int(page.claims[0]["id"]) if page.claims else None


def _list_others(
    connection: Connection, wanted: ClaimFilter, viewer: Viewer, claim_id: int
) -> Sequence[dict[str, Any]]:
    page = queue.list_queue(connection, wanted, viewer.owners, "newest", OTHERS + 1)
    return [each for each in page.claims if each["id"] != claim_id][:OTHERS]


def _join_history(claim: dict[str, Any]) -> list[dict[str, Any]]:
    """Events and notes in one list, the newest first."""
    events = [{**row, "kind": "event", "who": row["actor"]} for row in claim["events"]]
    notes = [{**row, "kind": "note", "who": row["author"]} for row in claim["notes"]]
    return sorted([*events, *notes], key=lambda row: row["at"], reverse=True)


def _list_held(connection: Connection, claim: dict[str, Any]) -> list[dict[str, Any]]:
    """Matches of the upload with the claim's asset that claim nothing by themselves."""
    rows = connection.execute(
        text("""
        SELECT reason, reference_id, reference, query_start, query_end, reference_start,
               reference_end, score
        FROM held_segments
        WHERE query_id = :query AND reference_id IN (
            SELECT video_id FROM reference_videos WHERE asset_id = :asset)
        ORDER BY query_start LIMIT 50"""),
        {"query": claim["query_id"], "asset": claim["asset_id"]},
    )
    return [dict(row) for row in rows.mappings()]


def _list_compared(connection: Connection, claim: dict[str, Any]) -> list[dict[str, Any]]:
    """The references of the claim's asset, each with its newest comparison, and what it found."""
    rows = connection.execute(
        text("""
        SELECT videos.id AS reference_id, videos.title AS reference,
               (SELECT count(*) FROM segments WHERE query_id = :query
                   AND segments.reference_id = videos.id AND held IS NULL) AS segments
        FROM reference_videos JOIN videos ON videos.id = reference_videos.video_id
        WHERE reference_videos.asset_id = :asset ORDER BY videos.title LIMIT 50"""),
        {"query": claim["query_id"], "asset": claim["asset_id"]},
    )
    return [
        {**row, "pair": pairs.find_newest(connection, claim["query_id"], row["reference_id"])}
        for row in rows.mappings().all()
    ]
