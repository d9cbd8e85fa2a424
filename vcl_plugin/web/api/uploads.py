"""`/api/v1/uploads`: videos come in, whole, in parts or by path, and are searched.

In: bytes or a path, and what is known of the upload. Out: a search; or a reference of an asset.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from fastapi import Depends, Header, Query, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from retrieval.database import transaction
from retrieval.errors import BadVideo, Refused
from retrieval.media.roots import confine_path
from retrieval.records import VideoStatus
from retrieval.tasks import enqueue_video
from retrieval.work.messages import Priority
from retrieval.work.uploads import read_upload
from vcl_plugin.claims import uploads
from vcl_plugin.claims.assets import require_asset
from vcl_plugin.references import add_reference
from vcl_plugin.web import incoming
from vcl_plugin.web.access import Site, current_site
from vcl_plugin.web.incoming import Incoming, Session
from vcl_plugin.web.keys import Viewer
from vcl_plugin.web.multipart import describe_form, read_form
from vcl_plugin.web.parameters import After, AskedName, Here, Limit, Next, Reader, Sender
from vcl_plugin.web.problems import WebError
from vcl_plugin.web.routing import make_router

router = make_router("/uploads", "uploads")

SessionId = Annotated[str, InPath(min_length=1, max_length=100)]
Offset = Annotated[int, Header(alias="Upload-Offset", ge=0, lt=2**63)]
Words = Annotated[str, Field(min_length=1, max_length=2000)]


class Facts(BaseModel):
    """What is known of an upload. The same content told of again with other words is another."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        None, description="default: the file's name"
    )
    uploader: Words | None = Field(None, description="who it is by; allow-lists name it")
    external_id: Words | None = Field(None, description="the platform's own id of the upload")
    url: Words | None = None
    uploaded_at: datetime | None = Field(None, description="a time without a zone is UTC's")
    priority: Priority = Priority.URGENT
    asset_id: Annotated[int, Field(ge=1, lt=2**63)] | None = Field(
        None, description="the video becomes a reference of that asset, and no upload"
    )


class PathBody(Facts):
    path: Words = Field(description="absolute path, or file:// URL, within the media roots")


class SessionBody(Facts):
    size: int = Field(ge=1, lt=2**63, description="bytes of the whole file")


class Accepted(BaseModel):
    """What became of a video that came in."""

    video_id: str
    search_id: str | None = Field(description="null: it became a reference")
    asset_id: int | None = Field(description="of which it is a reference")
    title: str
    bytes: int


class SessionRow(BaseModel):
    """An upload in parts."""

    id: str
    size: int
    offset: int = Field(description="bytes that have arrived; send the next from there on")
    accepted: Accepted | None = Field(description="when it is complete")


MULTIPART = describe_form(
    {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": {"type": "string", "contentMediaType": "application/octet-stream"},
            **{name: {"type": "string"} for name in Facts.model_fields},
        },
    }
)
BYTES = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string"}}},
    }
}
OFFSETS: dict[int | str, dict[str, Any]] = {
    204: {
        "description": "the bytes have arrived",
        "headers": {"Upload-Offset": {"schema": {"type": "integer"}}},
    }
}


class KnownUpload(BaseModel):
    """Somebody put a content somewhere."""

    id: int
    query_id: str
    query: str = Field(description="title of the video")
    duration: float | None
    status: VideoStatus
    reason: str | None
    uploader: str | None
    external_id: str | None
    url: str | None
    uploaded_at: datetime | None
    told_at: datetime


class UploadPage(BaseModel):
    uploads: list[KnownUpload]
    next: Next


def current_incoming(request: Request) -> Incoming:
    return Incoming(current_site(request).settings.upload_dir)


Files = Annotated[Incoming, Depends(current_incoming)]


@router.get("", response_model=UploadPage)
def list_uploads(
    viewer: Reader,
    site: Here,
    name: Annotated[
        str | None, Query(max_length=2000, description="platform's id, URL or id of the video")
    ] = None,
    uploader: AskedName = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Uploads, the newest first; a key with owners sees those that their claims speak of."""
    with transaction(site.database) as connection:
        page = uploads.list_uploads(connection, viewer.owners, name, uploader, limit, after)
    return {"uploads": page.rows, "next": page.next}


@router.post("", status_code=201, response_model=Accepted, openapi_extra=MULTIPART)
async def upload_video(request: Request, viewer: Sender, site: Here, files: Files) -> Any:
    """Upload a video as `multipart/form-data`: its fields, and the part `file`."""
    part = await run_in_threadpool(files.begin_part)
    try:
        form = await read_form(request, {"file": part})
        if "file" not in form.files:
            raise Refused("the body has no part called `file`", code="bad_arguments")
        facts = _read_facts(form.fields)
        name = Path(form.files["file"].replace("\\", "/")).name
        return await run_in_threadpool(_accept_part, site, viewer, files, part, facts, name)
    finally:
        part.unlink(missing_ok=True)


@router.post("/path", status_code=201, response_model=Accepted)
def upload_path(viewer: Sender, site: Here, body: PathBody) -> Any:
    """Take a video that lies in the media roots already."""
    path = _read_path(body.path)
    roots = [each for each in site.settings.roots if each != site.settings.upload_dir]
    if not roots:
        raise BadVideo(
            "no media roots are set, so no path is taken over HTTP; name folders in "
            "VCL_MEDIA_ROOTS, or upload the video itself",
            code="outside_media_roots",
        )
    confined = confine_path(path, roots)
    return _accept(site, viewer, confined, body, path.name)


@router.post("/sessions", status_code=201, response_model=SessionRow)
def open_session(
    viewer: Sender, site: Here, files: Files, body: SessionBody, response: Response
) -> Any:
    """Begin an upload in parts: send bytes with PATCH, ask how far it is with HEAD."""
    if body.size > site.settings.max_upload_bytes:
        raise WebError(
            f"a video of {body.size} bytes is more than the {site.settings.max_upload_bytes} "
            "allowed (VCL_MAX_UPLOAD_BYTES)",
            code="body_too_large",
            status=413,
        )
    _check_asset(site, viewer, body)
    read_upload(uploaded_at=_when(body))
    facts = body.model_dump(mode="json", exclude={"size"})
    with transaction(site.database) as connection:
        session = incoming.open_session(connection, files, viewer.name, body.size, facts)
    response.headers["Location"] = f"/api/v1/uploads/sessions/{session.id}"
    return _row(session)


@router.head("/sessions/{session_id}", status_code=200, response_class=Response)
def read_offset(viewer: Sender, site: Here, files: Files, session_id: SessionId) -> Response:
    """How many bytes have arrived, in the header `Upload-Offset`."""
    session, _ = _read_session(site, viewer, files, session_id)
    return Response(headers=_offsets(session))


@router.get("/sessions/{session_id}", response_model=SessionRow)
def read_session(viewer: Sender, site: Here, files: Files, session_id: SessionId) -> Any:
    """How far an upload in parts is, and what became of it."""
    return _row(_read_session(site, viewer, files, session_id)[0])


@router.patch(
    "/sessions/{session_id}",
    status_code=204,
    response_class=Response,
    responses=OFFSETS,
    openapi_extra=BYTES,
)
async def append_bytes(
    request: Request,
    viewer: Sender,
    site: Here,
    files: Files,
    session_id: SessionId,
    offset: Offset,
) -> Response:
    """Send the next bytes, from `Upload-Offset` on. What came before a cut has arrived."""
    session, part = await run_in_threadpool(_read_session, site, viewer, files, session_id)
    incoming.check_offset(session, offset)
    with incoming.hold(part):
        # Somebody else may have sent bytes before we held it.
        session, part = await run_in_threadpool(_read_session, site, viewer, files, session_id)
        incoming.check_offset(session, offset)
        await incoming.append_stream(part, request.stream(), session.size - offset)
    session, _ = await run_in_threadpool(_read_session, site, viewer, files, session_id, True)
    return Response(status_code=204, headers=_offsets(session))


@router.post("/sessions/{session_id}/complete", status_code=201, response_model=Accepted)
def complete_session(viewer: Sender, site: Here, files: Files, session_id: SessionId) -> Any:
    """All bytes have arrived: search the video. Asked again, the same answer."""
    session, part = _read_session(site, viewer, files, session_id)
    if session.accepted is not None:
        return session.accepted
    incoming.check_whole(session)
    with incoming.hold(part):
        session, part = _read_session(site, viewer, files, session_id)
        if session.accepted is not None:
            return session.accepted
        facts = Facts.model_validate(session.facts)
        accepted = _accept_part(site, viewer, files, part, facts, session_id)
        with transaction(site.database) as connection:
            incoming.close_session(connection, session_id, accepted)
        part.unlink(missing_ok=True)
    return accepted


@router.delete("/sessions/{session_id}", status_code=204, response_class=Response)
def drop_session(viewer: Sender, site: Here, files: Files, session_id: SessionId) -> Response:
    """Give an upload in parts up. One that is complete stays what it became."""
    session, part = _read_session(site, viewer, files, session_id)
    with transaction(site.database) as connection:
        incoming.drop_session(connection, session_id)
    if session.accepted is None:
        part.unlink(missing_ok=True)
    return Response(status_code=204)


def _accept_part(
    site: Site, viewer: Viewer, files: Incoming, part: Path, facts: Facts, name: str
) -> dict[str, Any]:
    path, digest = files.keep(part, facts.title or name)
    return _accept(site, viewer, path, facts, name, digest)


def _accept(
    site: Site, viewer: Viewer, path: Path, facts: Facts, name: str, digest: str | None = None
) -> dict[str, Any]:
    """Search a video, or make it a reference."""
    _check_asset(site, viewer, facts)
    upload = read_upload(facts.uploader, facts.external_id, facts.url, _when(facts))
    title = facts.title or name[:500] or "upload"
    video_id = site.engine.register(path, title, digest)
    search_id = None
    if facts.asset_id is None:
        search_id = enqueue_video(video_id, upload, facts.priority, viewer.name)
    else:
        add_reference(site.engine, video_id, facts.asset_id, viewer.owners)
    return {
        **{"video_id": video_id, "search_id": search_id, "asset_id": facts.asset_id},
        **{"title": title, "bytes": path.stat().st_size},
    }


def _check_asset(site: Site, viewer: Viewer, facts: Facts) -> None:
    """Whoever names an asset must see it, and may change what is protected."""
    if facts.asset_id is None:
        return
    if not viewer.may("manage"):
        raise WebError(
            f"a {viewer.role} may not add references; it needs a role that may manage",
            code="forbidden",
            status=403,
        )
    with transaction(site.database) as connection:
        require_asset(connection, facts.asset_id, viewer.owners)


def _read_facts(fields: Mapping[str, str]) -> Facts:
    """Fields of a form; an empty one is none."""
    try:
        return Facts.model_validate({name: value for name, value in fields.items() if value})
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _read_path(told: str) -> Path:
    """A path as the server has it, of a path or a file:// URL."""
    address = urlsplit(told) if "://" in told else None
    if address is not None and (
        address.scheme != "file" or address.netloc not in ("", "localhost")
    ):
        raise Refused(
            "only paths and file:// URLs are taken; fetch the video and upload it",
            code="bad_arguments",
        )
    path = Path(told if address is None else unquote(address.path))
    if not path.is_absolute():
        raise Refused("the path must be absolute", code="bad_arguments")
    return path


def _when(facts: Facts) -> str | None:
    return None if facts.uploaded_at is None else facts.uploaded_at.isoformat()


def _read_session(
    site: Site, viewer: Viewer, files: Incoming, session_id: str, must_touch: bool = False
) -> tuple[Session, Path]:
    with transaction(site.database) as connection:
        if must_touch:
            incoming.touch_session(connection, session_id)
        return incoming.read_session(connection, files, viewer.name, session_id)


def _row(session: Session) -> dict[str, Any]:
    return {
        **{"id": session.id, "size": session.size, "offset": session.offset},
        "accepted": session.accepted,
    }


def _offsets(session: Session) -> dict[str, str]:
    return {
        "Upload-Offset": str(session.offset),
        "Upload-Length": str(session.size),
        "Cache-Control": "no-store",
    }
