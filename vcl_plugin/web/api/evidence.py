"""`/api/v1/claims/{id}/evidence`: a claim's evidence as one page that needs nothing else.

In: a claim. Out: HTML with its pictures in it. Its scripts run in a place of their own: the page is
sandboxed, and only the scripts that it came with are let.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tempfile
import threading
from pathlib import Path

from fastapi import Response

from retrieval.database import transaction
from vcl_plugin.claims.queue import read_queued
from vcl_plugin.reports.evidence import write_evidence
from vcl_plugin.web.parameters import Here, Reader, RowId
from vcl_plugin.web.routing import make_router

router = make_router("/claims", "claims")

_turns = threading.Semaphore(2)  # pages that are made at once; each decodes films


@router.get(
    "/{claim_id}/evidence",
    response_class=Response,
    responses={
        200: {"description": "a page", "content": {"text/html": {"schema": {"type": "string"}}}}
    },
)
def read_evidence(viewer: Reader, site: Here, claim_id: RowId) -> Response:
    """Evidence of a claim, to keep or print."""
    with transaction(site.database) as connection:
        read_queued(connection, claim_id, viewer.owners)
    with _turns, tempfile.TemporaryDirectory() as folder:
        page = write_evidence(site.engine, Path(folder) / "evidence.html", [claim_id]).read_text(
            encoding="utf-8"
        )
    return Response(
        page,
        media_type="text/html; charset=utf-8",
        headers={
            "Content-Security-Policy": _policy(page),
            "Content-Disposition": f'inline; filename="claim-{claim_id}.html"',
        },
    )


def _policy(page: str) -> str:
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    digests = [
        base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts
    ]
    allowed = " ".join(f"'sha256-{each}'" for each in digests) or "'none'"
    return (
        "sandbox allow-scripts allow-modals; default-src 'none'; img-src data:; "
        f"style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
