"""The files that pages are made of besides HTML: style, scripts, pictures.

In: a name. Out: its bytes, compressed ahead, under an address that changes with its content.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from retrieval.errors import NotFound

router = APIRouter()

KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The lock of two players is also part of the evidence page, which is a file of its own.
FOLDERS = (("vcl_plugin.web.desk", "static"), ("vcl_plugin.reports", "templates"))


@dataclass(frozen=True)
class StaticFile:
    body: bytes
    squeezed: bytes
    kind: str
    tag: str


@cache
def static_files() -> dict[str, StaticFile]:
    found = {}
    for package, folder in FOLDERS:
        for each in files(package).joinpath(folder).iterdir():
            suffix = each.name[each.name.rfind(".") :]
            if suffix in KINDS and each.name not in found:
                body = each.read_bytes()
                tag = hashlib.sha256(body).hexdigest()[:12]
                squeezed = gzip.compress(body, 9, mtime=0)
                found[each.name] = StaticFile(body, squeezed, KINDS[suffix], tag)
    return found


def address_of(name: str) -> str:
    """Where a page finds a file; another content has another address."""
    return f"/static/{name}?v={static_files()[name].tag}"


@router.get("/static/{name}")
def read_static(request: Request, name: str) -> Response:
    found = static_files().get(name)
    if found is None:
        raise NotFound(f"there is no file {name!r}")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            found.squeezed, media_type=found.kind, headers={**headers, "Content-Encoding": "gzip"}
        )
    return Response(found.body, media_type=found.kind, headers=headers)
