"""`/api/v1/status`: what runs, in which version, and how much work waits."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, Field

from retrieval.database import current_revision, transaction
from retrieval.services import service_status
from retrieval.work.backlog import count_work
from vcl_plugin.web.parameters import Here, SiteReader
from vcl_plugin.web.routing import make_router

router = make_router("/status", "status")


class ServiceRow(BaseModel):
    name: str
    kind: str
    is_running: bool
    version: str | None


class Status(BaseModel):
    version: str
    schema_revision: str | None
    services: list[ServiceRow]
    counts: dict[str, float] = Field(description="how much there is, and how much of it waits")


@router.get("", response_model=Status)
def read_status(viewer: SiteReader, site: Here) -> Any:
    """What runs and how much work waits, as `vcl status` shows it."""
    with transaction(site.database) as connection:
        counts = count_work(connection)
    return {
        "version": version("vcl-plugin"),
        "schema_revision": current_revision(site.database),
        "services": [
            {
                **{"name": each.name, "kind": each.kind},
                **{"is_running": each.running, "version": each.version},
            }
            for each in service_status(site.settings)
        ],
        "counts": counts,
    }
