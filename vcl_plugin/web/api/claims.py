"""`/api/v1/claims`: the queue, one claim, decisions about one or many, notes, assignment, undo.

In: filters and decisions of a viewer. Out: claims as JSON; nothing of other owners.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from retrieval.database import transaction
from retrieval.errors import Moved, Refused
from retrieval.paging import MOST
from vcl_plugin.claims import decisions, queue
from vcl_plugin.claims.decisions import Decision
from vcl_plugin.claims.queue import ClaimFilter
from vcl_plugin.web.access import Site, current_site, require
from vcl_plugin.web.keys import Viewer
from vcl_plugin.web.problems import WebError
from vcl_plugin.web.routing import make_router

router = make_router("/claims", "claims")

ClaimId = Annotated[int, Path(ge=1, lt=2**63, description="the claim's number")]
Reader = Annotated[Viewer, Depends(require("read"))]
Reviewer = Annotated[Viewer, Depends(require("decide"))]
Here = Annotated[Site, Depends(current_site)]
Status = Literal["potential", "active", "disputed", "upheld", "released", "expired"]
Verb = Literal["confirm", "dispute", "uphold", "release", "exclude"]
Reason = Literal["misidentified", "authorised", "fair_use", "public_domain", "original"]
Text = Annotated[str, Field(min_length=1, max_length=4000)]


class ClaimRow(BaseModel):
    """A claim as the queue shows it."""

    id: int
    status: Status
    reason: str | None
    action: str | None
    actions: str | None = Field(description="what it does where, in words")
    owner: str
    asset_id: int
    asset: str
    query_id: str
    query: str | None = Field(description="title of the upload")
    query_seconds: float | None
    seconds: float = Field(description="infringing seconds, overlaps counted once")
    segment_count: int
    score: float
    stake: float = Field(description="seconds x score x days of age")
    created_at: datetime
    updated_at: datetime
    assignee: str | None
    uploader: str | None
    external_id: str | None
    url: str | None
    uploaded_at: datetime | None
    times_uploaded: int


class ClaimPage(BaseModel):
    claims: list[ClaimRow]
    next: str | None = Field(description="cursor of the next page; null: this is the last")


class Counts(BaseModel):
    potential: int
    active: int
    disputed: int
    upheld: int
    released: int
    expired: int


class SegmentRow(BaseModel):
    reference_id: str
    reference: str | None
    query_start: float
    query_end: float
    reference_start: float
    reference_end: float
    score: float
    is_reversed: bool
    speed: float
    held: str | None


class UploadRow(BaseModel):
    id: int
    uploader: str | None
    external_id: str | None
    url: str | None
    uploaded_at: datetime | None
    told_at: datetime


class EventRow(BaseModel):
    at: datetime
    actor: str
    from_status: str | None
    to_status: str
    reason: str | None
    note: str | None


class NoteRow(BaseModel):
    id: int
    at: datetime
    author: str
    note: str


class ClaimDetail(ClaimRow):
    """A claim with all that is known of it."""

    segments: list[SegmentRow]
    uploads: list[UploadRow]
    events: list[EventRow]
    notes: list[NoteRow]


class OutcomeRow(BaseModel):
    """What became of one claim of a decision."""

    model_config = ConfigDict(from_attributes=True)

    claim_id: int
    status: str | None
    is_changed: bool
    reason: str | None = Field(description="code of the refusal")
    message: str | None
    released_with_it: list[int]


class DecisionBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    verb: Verb
    reason: Reason | None = Field(None, description="needed for release and exclude")
    note: Text | None = None
    expected: Status | None = Field(None, description="the status in which you saw the claim")


class FilterBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    status: list[Status] = []
    owner: str | None = None
    asset: str | None = None
    action: str | None = None
    min_age: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_age: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    min_seconds: float | None = None
    max_seconds: float | None = None
    min_score: float | None = None
    max_score: float | None = None
    text: str | None = None
    upload: str | None = None
    assignee: str | None = None


class BulkBody(DecisionBody):
    """A decision about claims by number, or about all that a filter means."""

    ids: list[Annotated[int, Field(ge=1, lt=2**63)]] | None = Field(None, max_length=10_000)
    filter: FilterBody | None = Field(None, description="as the parameters of the listing")
    dry_run: bool = Field(False, description="count what would change, and change nothing")


class BulkOutcome(BaseModel):
    changed: int
    refused: int
    dry_run: bool
    outcomes: list[OutcomeRow]


class NoteBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    note: Text


class AssignBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ids: list[Annotated[int, Field(ge=1, lt=2**63)]] = Field(min_length=1, max_length=1000)
    assignee: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        description="null: nobody"
    )


Words = Annotated[str | None, Query(max_length=1000)]
Number = Annotated[float | None, Query(ge=0, allow_inf_nan=False)]


def read_filter(
    status: Annotated[list[Status] | None, Query(description="repeat for several")] = None,
    owner: Words = None,
    asset: Annotated[str | None, Query(max_length=1000, description="number or title")] = None,
    action: Annotated[Literal["track", "monetize", "review", "block"] | None, Query()] = None,
    min_age: Annotated[float | None, Query(ge=0, allow_inf_nan=False, description="days")] = None,
    max_age: Annotated[float | None, Query(ge=0, allow_inf_nan=False, description="days")] = None,
    min_seconds: Number = None,
    max_seconds: Number = None,
    min_score: Number = None,
    max_score: Number = None,
    text: Annotated[
        str | None, Query(max_length=1000, description="part of a title, asset or uploader")
    ] = None,
    upload: Annotated[
        str | None, Query(max_length=1000, description="platform's id, URL or video id")
    ] = None,
    assignee: Words = None,
) -> ClaimFilter:
    """The filter of a request; the parameters are named as its fields."""
    values = dict(locals())
    return ClaimFilter(**{**values, "status": tuple(status or ())})


Wanted = Annotated[ClaimFilter, Depends(read_filter)]


@router.get("", response_model=ClaimPage)
def list_claims(
    viewer: Reader,
    site: Here,
    wanted: Wanted,
    sort: Annotated[Literal["stake", "newest", "oldest", "seconds", "score"], Query()] = "stake",
    limit: Annotated[int, Query(ge=1, le=MOST)] = 50,
    after: Annotated[str | None, Query(max_length=500, description="`next` of a page")] = None,
) -> Any:
    """Claims, what is most at stake first."""
    with transaction(site.database) as connection:
        return queue.list_queue(connection, wanted, viewer.owners, sort, limit, after)


@router.get("/counts", response_model=Counts)
def count_claims(viewer: Reader, site: Here, wanted: Wanted) -> Any:
    """How many claims there are by status."""
    with transaction(site.database) as connection:
        return queue.count_queue(connection, wanted, viewer.owners)


@router.post("/decisions", response_model=BulkOutcome)
def decide_claims(viewer: Reviewer, site: Here, body: BulkBody) -> Any:
    """Decide many claims; one that cannot be decided so hinders no other."""
    if (body.ids is None) == (body.filter is None):
        raise Refused("name claims by `ids` or by `filter`, not by both", code="bad_arguments")
    decision = _read_decision(body, viewer)
    ids = body.ids
    if ids is None:
        with transaction(site.database) as connection:
            ids = queue.list_ids(connection, _filter_of(body.filter or FilterBody()), viewer.owners)
    outcomes = decisions.decide_many(site.database, ids, decision, viewer.owners, body.dry_run)
    changed = sum(each.is_changed for each in outcomes)
    return {
        "changed": changed,
        "refused": len(outcomes) - changed,
        "dry_run": body.dry_run,
        "outcomes": outcomes,
    }


@router.post("/assignments", status_code=204)
def assign_claims(viewer: Reviewer, site: Here, body: AssignBody) -> None:
    """Say who looks at claims."""
    with transaction(site.database) as connection:
        decisions.assign_claims(connection, body.ids, body.assignee, viewer.name, viewer.owners)


@router.get("/{claim_id}", response_model=ClaimDetail)
def read_claim(viewer: Reader, site: Here, claim_id: ClaimId) -> Any:
    """One claim: segments, uploads, history and notes."""
    with transaction(site.database) as connection:
        return decisions.read_history(connection, claim_id, viewer.owners)


@router.post("/{claim_id}/decisions", response_model=OutcomeRow)
def decide_claim(
    request: Request, viewer: Reviewer, site: Here, claim_id: ClaimId, body: DecisionBody
) -> Any:
    """Decide a claim. One that moved meanwhile is 409, with what it is by now."""
    try:
        with transaction(site.database) as connection:
            decision = _read_decision(body, viewer)
            return decisions.decide(connection, claim_id, decision, viewer.owners)
    except Moved as error:
        raise _with_state(site, claim_id, viewer, error) from None


@router.post("/{claim_id}/undo", response_model=OutcomeRow)
def undo_decision(viewer: Reviewer, site: Here, claim_id: ClaimId) -> Any:
    """Take your last decision about a claim back, within a minute."""
    with transaction(site.database) as connection:
        return decisions.undo_decision(connection, claim_id, viewer.name, viewer.owners)


@router.post("/{claim_id}/notes", response_model=ClaimDetail, status_code=201)
def add_note(viewer: Reviewer, site: Here, claim_id: ClaimId, body: NoteBody) -> Any:
    """Write a note on a claim."""
    with transaction(site.database) as connection:
        decisions.add_note(connection, claim_id, viewer.name, body.note, viewer.owners)
        return decisions.read_history(connection, claim_id, viewer.owners)


def _read_decision(body: DecisionBody, viewer: Viewer) -> Decision:
    return Decision(body.verb, viewer.name, body.reason, body.note, body.expected)


def _filter_of(body: FilterBody) -> ClaimFilter:
    return ClaimFilter(**{**body.model_dump(), "status": tuple(body.status)})


def _with_state(site: Site, claim_id: int, viewer: Viewer, error: Moved) -> WebError:
    with transaction(site.database) as connection:
        state = _state_of(connection, claim_id, viewer)
    return WebError(str(error), code=error.code, status=409, state=state)


def _state_of(connection: Connection, claim_id: int, viewer: Viewer) -> dict[str, Any]:
    row = queue.read_queued(connection, claim_id, viewer.owners)
    return {"id": row["id"], "status": row["status"], "updated_at": row["updated_at"].isoformat()}
