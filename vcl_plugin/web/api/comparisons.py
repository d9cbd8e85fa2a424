"""`/api/v1/comparisons`: two videos, or two files of descriptors, localized here and now.

In: ids of videos that are described, or files. Out: segments. Nothing is written down.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from retrieval.database import transaction
from retrieval.errors import BadDescriptors, Refused
from retrieval.pairing import localize_views
from retrieval.plugins import Localizer, load_localizer
from retrieval.store import StoredDescriptors, read_descriptors
from vcl_plugin.claims.sight import read_visible
from vcl_plugin.web.access import Site
from vcl_plugin.web.incoming import Incoming
from vcl_plugin.web.multipart import describe_form, read_form
from vcl_plugin.web.parameters import Here, Name, Reader
from vcl_plugin.web.problems import WebError
from vcl_plugin.web.routing import make_router

router = make_router("/comparisons", "comparisons")

PATIENCE = 30.0  # seconds to wait for the comparison before this one
_turn = threading.Lock()

Method = Literal["transvcl", "tn", "hv", "dp", "dtw", "spd"]
METHODS: list[str] = [*get_args(Method)]


class PairBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Name = Field(description="id of a video")
    reference: Name
    method: Method | None = Field(None, description="default: the one that searches use")


class ComparedSegment(BaseModel):
    query_start: float
    query_end: float
    reference_start: float
    reference_end: float
    score: float
    is_reversed: bool
    speed: float


class Compared(BaseModel):
    method: str
    segments: list[ComparedSegment]


FILES = describe_form(
    {
        "type": "object",
        "required": ["query", "reference"],
        "properties": {
            **{
                name: {"type": "string", "contentMediaType": "application/octet-stream"}
                for name in ("query", "reference")
            },
            "method": {"type": "string", "enum": METHODS},
        },
    }
)


@router.post("", response_model=Compared)
def compare_videos(viewer: Reader, site: Here, body: PairBody) -> Any:
    """The copied segments between two videos that are described."""
    with transaction(site.database) as connection:
        for each in (body.query, body.reference):
            read_visible(connection, each, viewer.owners, viewer.name)
    query, reference = (site.engine.read_descriptors(each) for each in (body.query, body.reference))
    return _compare(site, query, reference, body.method)


@router.post("/files", response_model=Compared, openapi_extra=FILES)
async def compare_files(request: Request, viewer: Reader, site: Here) -> Any:
    """The same of two `.npy` arrays (frames, 256), one row a second, as `multipart/form-data`."""
    incoming = Incoming(site.settings.upload_dir)
    parts = {
        name: await run_in_threadpool(incoming.begin_part, ".npy")
        for name in ("query", "reference")
    }
    try:
        form = await read_form(request, parts)
        if missing := [name for name in parts if name not in form.files]:
            raise Refused(f"the body has no part called `{missing[0]}`", code="bad_arguments")
        method = form.fields.get("method") or None
        if method is not None and method not in METHODS:
            raise Refused(
                f"{method[:40]!r} is no method; use one of {', '.join(METHODS)}",
                code="bad_arguments",
            )
        query, reference = [
            await run_in_threadpool(_read_array, parts[name], name) for name in parts
        ]
        return await run_in_threadpool(_compare, site, query, reference, method)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _read_array(part: Path, name: str) -> StoredDescriptors:
    try:
        return read_descriptors(part)
    except BadDescriptors as error:
        # Where it lies here is nobody's business.
        raise BadDescriptors(str(error).replace(str(part), f"`{name}`"), code=error.code) from None


def _compare(
    site: Site, query: StoredDescriptors, reference: StoredDescriptors, method: str | None
) -> dict[str, Any]:
    with _one_at_a_time():
        localizer = _load(site, method)
        [found] = localize_views(localizer, query, [reference])
    return {
        "method": method or site.settings.localizer,
        "segments": [each.as_dict() for each in found],
    }


def _load(site: Site, method: str | None) -> Localizer:
    if method in (None, site.settings.localizer):
        return site.engine.localizer
    return load_localizer(str(method))


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """A comparison takes a core and some memory; requests beside it go on."""
    if not _turn.acquire(timeout=PATIENCE):
        raise WebError(
            "other comparisons are under way; try again in a moment",
            code="too_busy",
            status=503,
            headers={"Retry-After": "5"},
        )
    try:
        yield
    finally:
        _turn.release()
