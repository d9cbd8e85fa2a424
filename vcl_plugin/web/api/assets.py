"""`/api/v1/assets`: works that somebody owns, and who holds which share of them.

In: titles, owners, shares. Out: assets; nothing of other owners.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from retrieval.database import transaction
from vcl_plugin.claims import assets, holdings, rulebook
from vcl_plugin.claims.claims import list_standing
from vcl_plugin.claims.rights import WORLD, require_owner
from vcl_plugin.web.changing import Changed, follow
from vcl_plugin.web.parameters import (
    After,
    AskedName,
    Here,
    Limit,
    Manager,
    Name,
    Next,
    Reader,
    RowId,
)
from vcl_plugin.web.routing import make_router

router = make_router("/assets", "assets")


class AssetRow(BaseModel):
    id: int
    owner: str
    title: str
    reference_videos: int
    policy: str | None = Field(description="null: that of whoever holds most of it")
    created_at: datetime
    removed_at: datetime | None


class AssetPage(BaseModel):
    assets: list[AssetRow]
    next: Next


class ShareRow(BaseModel):
    owner: str
    territory: str = Field(description="ISO 3166 code; WW: everywhere else")
    percent: float


class AssetDetail(AssetRow):
    shares: list[ShareRow]


class AssetBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    owner: Name
    title: Name


class ShareBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    owner: Name
    percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = Field(
        description="0 gives the share up"
    )
    territory: Annotated[str, Field(min_length=2, max_length=10)] = WORLD


class RemovedAsset(BaseModel):
    asset_id: int
    references: list[str] = Field(description="videos that are searched against no more")
    standing_claims: list[int] = Field(description="they can only be released from now on")


@router.get("", response_model=AssetPage)
def list_assets(
    viewer: Reader,
    site: Here,
    owner: AskedName = None,
    text: Annotated[str | None, Query(max_length=1000, description="part of the title")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Assets, by owner and title."""
    with transaction(site.database) as connection:
        page = holdings.list_assets(connection, viewer.owners, owner, text, limit, after)
    return {"assets": page.rows, "next": page.next}


@router.post("", response_model=AssetDetail, status_code=201)
def add_asset(viewer: Manager, site: Here, body: AssetBody) -> Any:
    """Add an asset; the same owner and title twice is the same asset."""
    with transaction(site.database) as connection:
        if viewer.owners is not None:
            require_owner(connection, body.owner, viewer.owners)
        asset_id = assets.add_asset(connection, body.owner, body.title)
        return holdings.read_asset(connection, asset_id, viewer.owners)


@router.get("/{asset_id}", response_model=AssetDetail)
def read_asset(viewer: Reader, site: Here, asset_id: RowId) -> Any:
    """An asset and its shares."""
    with transaction(site.database) as connection:
        return holdings.read_asset(connection, asset_id, viewer.owners)


@router.delete("/{asset_id}", response_model=RemovedAsset)
def remove_asset(viewer: Manager, site: Here, asset_id: RowId) -> Any:
    """Protect an asset no more; claims on it can only be released from then on."""
    with transaction(site.database) as connection:
        assets.require_asset(connection, asset_id, viewer.owners)
        references = assets.remove_asset(connection, asset_id)
        standing = list_standing(connection, asset_id)
    return {"asset_id": asset_id, "references": references, "standing_claims": standing}


@router.post("/{asset_id}/shares", response_model=Changed)
def share_asset(viewer: Manager, site: Here, asset_id: RowId, body: ShareBody) -> Any:
    """Set an owner's share of an asset in a territory."""
    with transaction(site.database) as connection:
        assets.require_asset(connection, asset_id, viewer.owners)
        change = rulebook.share_asset(
            connection, viewer.name, asset_id, body.owner, body.percent, body.territory
        )
    return follow(site, viewer, change)
