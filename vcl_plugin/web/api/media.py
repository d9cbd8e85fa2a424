"""`/api/v1/media`: films by range, previews, thumbnails and similarity maps of videos.

In: ids of videos, never a path. Out: bytes that a browser shows; nothing of other owners.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

from fastapi import Depends, Query, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import NotFound, RetrievalError
from retrieval.pairing import match_rows
from retrieval.plugins import Array
from retrieval.records import Video
from retrieval.settings import Settings
from retrieval.work import catalogue, pairs
from vcl_plugin.claims.sight import read_visible
from vcl_plugin.reports.evidence import compare_seconds, draw_similarity
from vcl_plugin.web.access import Site, current_site, require
from vcl_plugin.web.keys import Viewer
from vcl_plugin.web.previews import Previews
from vcl_plugin.web.problems import WebError
from vcl_plugin.web.routing import make_router

router = make_router("/media", "media")

Reader = Annotated[Viewer, Depends(require("read"))]
Here = Annotated[Site, Depends(current_site)]
VideoId = Annotated[str, Query(min_length=1, max_length=1000, description="id of a video")]
Second = Annotated[float, Query(ge=0, le=1e6, allow_inf_nan=False)]
# A film is known by its content, so what a browser has stays right.
KEPT = {"Cache-Control": "private, max-age=86400"}


class PreviewState(BaseModel):
    """How far the preview of a film is that browsers cannot play."""

    model_config = ConfigDict(from_attributes=True)

    state: str = Field(description="missing, making, ready or failed")
    share: float = Field(description="from 0 to 1")
    message: str | None


class SimilarityMap(BaseModel):
    """How alike every second of an upload is to every second of a reference."""

    step: int = Field(description="seconds that a cell stands for, in both directions")
    rows: int
    columns: int
    values: list[list[float]] = Field(description="cosines from 0 to 1; a row is upload seconds")


def _binary(kind: str) -> dict[int | str, dict[str, Any]]:
    content = {kind: {"schema": {"type": "string", "format": "binary"}}}
    return {200: {"content": content, "description": "the bytes"}}


@lru_cache(maxsize=4)
def previews_of(settings: Settings) -> Previews:
    """The process has one, so that each film is hashed and converted once."""
    return Previews(settings)


@router.get("/film", response_class=Response, responses=_binary("video/mp4"))
def read_film(
    viewer: Reader,
    site: Here,
    video: VideoId,
    preview: Annotated[bool, Query(description="the preview, even if the film plays")] = False,
) -> Response:
    """A film as browsers play it, by range; 503 `preview_pending` while a preview is made."""
    found = _read_video(site, viewer, video)
    film = previews_of(site.settings).find_film(found, must_convert=preview)
    if film is None:
        raise WebError(
            "browsers cannot play this film, so a preview of it is being made; ask again soon",
            code="preview_pending",
            status=503,
            headers={"Retry-After": "2"},
        )
    headers = {**KEPT, "X-Film": "original" if film.is_original else "preview"}
    return FileResponse(film.path, media_type=film.media_type, headers=headers)


@router.get("/preview", response_model=PreviewState)
def read_preview(viewer: Reader, site: Here, video: VideoId) -> Any:
    """How far the preview of a film is."""
    return previews_of(site.settings).read_progress(_read_video(site, viewer, video))


@router.get("/thumbnail", response_class=Response, responses=_binary("image/jpeg"))
def read_thumbnail(
    viewer: Reader,
    site: Here,
    video: VideoId,
    second: Second = 0,
    beside: Annotated[
        list[Second] | None,
        Query(max_length=50, description="seconds that are asked for next: made at once"),
    ] = None,
) -> Response:
    """What a video shows at a second, as a small JPEG."""
    found = _read_video(site, viewer, video)
    path = previews_of(site.settings).read_thumbnail(found, second, beside or ())
    return FileResponse(path, media_type="image/jpeg", headers=KEPT)


@router.get("/map.png", response_class=Response, responses=_binary("image/png"))
def draw_map(viewer: Reader, site: Here, query: VideoId, reference: VideoId) -> Response:
    """The similarity map of two videos that were compared: upload downwards, reference across."""
    picture = draw_similarity(*_read_arrays(site, viewer, query, reference))
    return Response(picture, media_type="image/png", headers={"Cache-Control": "private, no-cache"})


@router.get("/map.json", response_model=SimilarityMap)
def read_map(viewer: Reader, site: Here, query: VideoId, reference: VideoId) -> Any:
    """The same map as numbers."""
    values, step = compare_seconds(*_read_arrays(site, viewer, query, reference))
    return {
        **{"step": step, "rows": values.shape[0], "columns": values.shape[1]},
        "values": values.round(3).tolist(),
    }


def _read_video(site: Site, viewer: Viewer, video_id: str) -> Video:
    with transaction(site.database) as connection:
        return read_visible(connection, video_id, viewer.owners, viewer.name)


def _read_arrays(
    site: Site, viewer: Viewer, query_id: str, reference_id: str
) -> tuple[Array, Array]:
    """The descriptors of two videos that may both be seen, as their newest comparison had them."""
    with transaction(site.database) as connection:
        for each in (query_id, reference_id):
            read_visible(connection, each, viewer.owners, viewer.name)
        pair = pairs.find_newest(connection, query_id, reference_id)
        paths = [
            None if pair is None else catalogue.find_descriptors(connection, each, pair.fingerprint)
            for each in (query_id, reference_id)
        ]
    if pair is None:
        raise NotFound(f"{query_id!r} and {reference_id!r} were never compared")
    return _match(site.engine, paths, pair.fingerprint)


def _match(engine: RetrievalEngine, paths: list[str | None], kind: str) -> tuple[Array, Array]:
    query, reference = paths
    try:
        if query is None or reference is None:
            raise NotFound("no descriptors")
        return match_rows(engine.store.read(query, kind), engine.store.read(reference, kind))
    except RetrievalError:
        raise NotFound("the descriptors that were compared are gone, so no map is drawn") from None
