"""`/api/v1/owners`: who owns assets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from retrieval.database import transaction
from vcl_plugin.claims import holdings
from vcl_plugin.web.parameters import After, Here, Limit, Next, Reader
from vcl_plugin.web.routing import make_router

router = make_router("/owners", "owners")


class OwnerRow(BaseModel):
    id: int
    name: str
    assets: int
    reference_videos: int
    standing_claims: int
    policy: str | None = Field(description="null: the default policy")
    created_at: datetime


class OwnerPage(BaseModel):
    owners: list[OwnerRow]
    next: Next


@router.get("", response_model=OwnerPage)
def list_owners(viewer: Reader, site: Here, limit: Limit = 50, after: After = None) -> Any:
    """Owners by name."""
    with transaction(site.database) as connection:
        page = holdings.list_owners(connection, viewer.owners, limit, after)
    return {"owners": page.rows, "next": page.next}
