"""`/api/v1/segments`: copied stretches, claimed or not, with both spans."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from retrieval.database import transaction
from vcl_plugin.claims.segments import SegmentFilter, list_segments
from vcl_plugin.web.parameters import After, AskedName, AskedNumber, Here, Limit, Next, Reader
from vcl_plugin.web.routing import make_router

router = make_router("/segments", "segments")

Held = Literal[
    "low_information", "shared_footage", "excluded", "allowed", "reference", "superseded"
]


class FoundSegment(BaseModel):
    """These seconds of the upload are those seconds of the reference."""

    id: int
    query_id: str
    query: str
    reference_id: str
    reference: str
    asset_id: int | None
    asset: str | None
    owner: str | None
    claim_id: int | None
    claim_status: str | None
    query_start: float
    query_end: float
    reference_start: float
    reference_end: float
    score: float
    is_reversed: bool
    speed: float = Field(description="seconds of the reference in a second of the upload")
    held: Held | None = Field(description="why it claims nothing by itself")
    created_at: datetime


class SegmentPage(BaseModel):
    segments: list[FoundSegment]
    next: Next


@router.get("", response_model=SegmentPage)
def read_segments(
    viewer: Reader,
    site: Here,
    claim: AskedNumber = None,
    search: Annotated[str | None, Query(max_length=200, description="id of a search")] = None,
    query: Annotated[str | None, Query(max_length=1000, description="id of the upload")] = None,
    reference: AskedName = None,
    asset: AskedNumber = None,
    owner: AskedName = None,
    claimed: Annotated[bool | None, Query(description="whether a claim rests on it")] = None,
    reversed: Annotated[bool | None, Query()] = None,
    held: Annotated[Held | None, Query()] = None,
    min_score: Annotated[float | None, Query(ge=0, le=1, allow_inf_nan=False)] = None,
    min_seconds: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Segments, the newest first."""
    wanted = SegmentFilter(
        claim_id=claim,
        search_id=search,
        query_id=query,
        reference_id=reference,
        asset_id=asset,
        owner=owner,
        is_claimed=claimed,
        is_reversed=reversed,
        held=held,
        min_score=min_score,
        min_seconds=min_seconds,
    )
    with transaction(site.database) as connection:
        page = list_segments(connection, wanted, viewer.owners, limit, after)
    return {"segments": page.rows, "next": page.next}
