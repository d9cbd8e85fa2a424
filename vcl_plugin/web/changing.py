"""What follows from a rule that was changed over HTTP.

In: the number of a change that is committed. Out: whether every upload follows it by now, and which
claims expired by it. A request waits some seconds; what is left is settled beside a worker.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from retrieval.database import transaction
from vcl_plugin.claims.changes import list_expired, settle_for
from vcl_plugin.web.access import Site
from vcl_plugin.web.keys import Viewer

PATIENCE = 5.0


class Changed(BaseModel):
    """A change of a rule."""

    change_id: int
    is_settled: bool = Field(description="false: workers go on with uploads that it touches")
    expired_claims: list[int] = Field(description="claims that lost their evidence by it, so far")


def follow(site: Site, viewer: Viewer, change_id: int) -> dict[str, Any]:
    is_settled = settle_for(site.database, change_id, PATIENCE)
    with transaction(site.database) as connection:
        expired = list_expired(connection, change_id, viewer.owners)
    return {"change_id": change_id, "is_settled": is_settled, "expired_claims": expired}
