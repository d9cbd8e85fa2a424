"""The pages of the desk, as one router: `app` includes it."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from vcl_plugin.web.desk import catalogue, claim, files, login, queue, reports, search

router = APIRouter()


@router.get("/")
def show_start() -> Response:
    return RedirectResponse("/claims", 303)


for each in (files, login, queue, claim, search, catalogue, reports):
    router.include_router(each.router)
