"""`/api/v1/why`: why an upload is, or is not, claimed for a reference."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from retrieval.database import transaction
from vcl_plugin.claims.sight import read_visible
from vcl_plugin.reports.inquiry import explain_pair
from vcl_plugin.web.parameters import Here, Reader, VideoId
from vcl_plugin.web.routing import make_router

router = make_router("/why", "why")


class Answer(BaseModel):
    """How far the two got with each other, and what stopped them."""

    code: str
    sentence: str
    query_id: str
    reference_id: str
    facts: dict[str, Any]


@router.get("", response_model=Answer)
def explain(viewer: Reader, site: Here, query: VideoId, reference: VideoId) -> Any:
    """Why an upload is, or is not, claimed for a reference."""
    with transaction(site.database) as connection:
        videos = [
            read_visible(connection, each, viewer.owners, viewer.name)
            for each in (query, reference)
        ]
    answer = explain_pair(site.engine, *videos)
    return {
        **{"code": answer.code, "sentence": answer.sentence, "facts": answer.facts},
        **{"query_id": answer.query_id, "reference_id": answer.reference_id},
    }
