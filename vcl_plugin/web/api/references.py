"""`/api/v1/references`: videos that show an asset, and stretches of them that prove nothing.

In: ids of videos, as parameters, for they may hold any character. Out: references; nothing of other
owners. A file becomes a reference by `/uploads` with an `asset_id`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from retrieval.database import transaction
from retrieval.errors import NotFound
from retrieval.records import VideoStatus
from vcl_plugin import references
from vcl_plugin.claims import assets, holdings, rulebook
from vcl_plugin.claims.sight import read_visible
from vcl_plugin.web.changing import Changed, follow
from vcl_plugin.web.keys import Viewer
from vcl_plugin.web.parameters import (
    After,
    AskedName,
    AskedNumber,
    Here,
    Limit,
    Manager,
    Name,
    Next,
    Number,
    Reader,
    VideoId,
)
from vcl_plugin.web.routing import make_router

router = make_router("/references", "references")


class ReferenceRow(BaseModel):
    id: str
    title: str
    owner: str | None
    asset_id: int | None
    asset: str | None
    duration: float | None
    status: VideoStatus
    reason: str | None
    message: str | None
    created_at: datetime


class ReferencePage(BaseModel):
    references: list[ReferenceRow]
    next: Next


class ReferenceBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    video_id: Name = Field(description="a video that is known already")
    asset_id: Number


class Added(BaseModel):
    video_id: str
    asset_id: int


class RemovedReference(BaseModel):
    video_id: str


class ConflictRow(BaseModel):
    """Footage of a reference that a reference of another owner holds too."""

    reference: str
    reference_id: str
    reference_start: float
    reference_end: float
    other_owner: str | None
    other_asset: str | None
    other_reference: str
    other_reference_id: str
    other_start: float
    other_end: float
    score: float


class ExclusionRow(BaseModel):
    id: int
    start: float
    end: float
    actor: str
    note: str | None
    claim_id: int | None
    created_at: datetime


class ExclusionBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    video_id: Name
    start: float = Field(ge=0, allow_inf_nan=False)
    end: float = Field(gt=0, allow_inf_nan=False, description="the second after the last")
    note: Annotated[str, Field(min_length=1, max_length=4000)] | None = None


@router.get("", response_model=ReferencePage)
def list_references(
    viewer: Reader,
    site: Here,
    owner: AskedName = None,
    asset: AskedNumber = None,
    status: Annotated[VideoStatus | None, Query()] = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Reference videos, by owner, asset and title."""
    with transaction(site.database) as connection:
        page = holdings.list_references(
            connection, viewer.owners, owner, asset, status, limit, after
        )
    return {"references": page.rows, "next": page.next}


@router.post("", response_model=Added, status_code=201)
def add_reference(viewer: Manager, site: Here, body: ReferenceBody) -> Any:
    """Let a video that is known already stand for an asset."""
    with transaction(site.database) as connection:
        read_visible(connection, body.video_id, viewer.owners, viewer.name)
    references.add_reference(site.engine, body.video_id, body.asset_id, viewer.owners)
    return body


@router.delete("", response_model=RemovedReference)
def remove_reference(viewer: Manager, site: Here, video: VideoId) -> Any:
    """Search against a video no more; what was found so far stays."""
    with transaction(site.database) as connection:
        _require(connection, viewer, video)
        assets.remove_reference(connection, video)
    return {"video_id": video}


@router.get("/conflicts", response_model=list[ConflictRow])
def list_conflicts(viewer: Reader, site: Here, video: VideoId) -> Any:
    """Footage of a reference that references of other owners hold too."""
    with transaction(site.database) as connection:
        _require(connection, viewer, video)
        return assets.list_conflicts(connection, [video])


@router.get("/exclusions", response_model=list[ExclusionRow])
def list_exclusions(viewer: Reader, site: Here, video: VideoId) -> Any:
    """Stretches of a reference that prove nothing."""
    with transaction(site.database) as connection:
        _require(connection, viewer, video)
        return holdings.list_exclusions(connection, video)


@router.post("/exclusions", response_model=Changed, status_code=201)
def exclude(viewer: Manager, site: Here, body: ExclusionBody) -> Any:
    """Let a stretch of a reference claim nothing; undecided claims on nothing else expire."""
    with transaction(site.database) as connection:
        _require(connection, viewer, body.video_id)
        change = rulebook.exclude_stretch(
            connection, viewer.name, body.video_id, body.start, body.end, body.note
        )
    return follow(site, viewer, change)


def _require(connection: Connection, viewer: Viewer, video_id: str) -> None:
    """A reference of others answers like one that is not there."""
    if viewer.owners is None:
        return  # whoever sees all learns from what they do that it is not there
    asset_id = assets.find_holder(connection, video_id)
    if asset_id is None or not assets.is_visible(connection, asset_id, viewer.owners):
        raise NotFound(f"video {video_id!r} is no reference; `vcl reference list` shows them")
