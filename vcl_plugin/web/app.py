"""The application behind `vcl serve`: the API, the desk where there is one, and its health.

In: an engine. Out: an ASGI application; one a process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import text
from starlette.concurrency import run_in_threadpool

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import RetrievalError
from retrieval.site.metrics import MEASURES, SiteCollector
from vcl_plugin.claims.queue import age_stakes
from vcl_plugin.reports.metrics import MEASURES as PLUGIN_MEASURES
from vcl_plugin.web import api
from vcl_plugin.web.access import Site, require
from vcl_plugin.web.audit import Audit
from vcl_plugin.web.handbook import add_handbook
from vcl_plugin.web.incoming import Incoming
from vcl_plugin.web.keys import Viewer
from vcl_plugin.web.limits import Limits
from vcl_plugin.web.problems import RESPONSES, Problem, install_problems

log = logging.getLogger(__name__)

VERSION = "1"
PREFIX = f"/api/v{VERSION}"
BEAT_SECONDS = 1.0
AGE_SECONDS = 600.0  # between two looks whether claims are a day older
OPEN: dict[str, Any] = {"security": []}  # needs no key
DESK = "vcl_plugin.web.desk"


def create_app(engine: RetrievalEngine) -> FastAPI:
    """The application of that engine."""
    site = Site(engine.settings, engine)
    audit = Audit(engine.database)
    app = FastAPI(
        title="vcl",
        version=VERSION,
        description="Find copied video: uploads, searches, claims, rights and reports.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # the usual pages load scripts from elsewhere
        redoc_url=None,
        lifespan=_beat(site, audit),
    )
    app.state.site = site
    install_problems(app)
    app.add_middleware(
        Limits,
        rate=engine.settings.requests_per_second,
        upload_bytes=engine.settings.max_upload_bytes,
        note=audit.note,
    )
    for module in sorted(each.name for each in iter_modules(api.__path__)):
        app.include_router(import_module(f"{api.__name__}.{module}").router, prefix=PREFIX)
    _add_health(app, site)
    add_handbook(app)
    if find_spec(DESK) is not None:
        app.include_router(import_module(f"{DESK}.routes").router, include_in_schema=False)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    return app


def _beat(site: Site, audit: Audit) -> Any:
    """What goes on beside the requests: accesses are written, claims grow older, and uploads that
    nobody goes on with are deleted."""
    incoming = Incoming(site.settings.upload_dir)

    def work(number: int) -> None:
        audit.write()
        if number % int(AGE_SECONDS / BEAT_SECONDS) == 0:
            age_stakes(site.database)
            incoming.drop_abandoned(site.database)

    async def beat() -> None:
        number = 0
        while True:
            try:
                await run_in_threadpool(work, number)
            except RetrievalError as error:
                log.warning("put off: %s", error)
            number += 1
            await asyncio.sleep(BEAT_SECONDS)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await run_in_threadpool(audit.write)

    return lifespan


def _add_health(app: FastAPI, site: Site) -> None:
    @app.get("/livez", tags=["health"], responses=RESPONSES, openapi_extra=OPEN)
    async def livez() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["health"], responses=RESPONSES, openapi_extra=OPEN)
    def readyz() -> dict[str, str]:
        """Whether requests can be served: PostgreSQL answers."""
        with transaction(site.database) as connection:
            connection.execute(text("SELECT 1"))
        return {"status": "ok"}

    registry = CollectorRegistry()
    registry.register(SiteCollector(site.settings, (*MEASURES, *PLUGIN_MEASURES)))

    @app.get(
        "/metrics",
        tags=["health"],
        response_class=Response,
        responses={**RESPONSES, 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    def metrics(
        viewer: Annotated[Viewer, Depends(require("read", all_owners=True))],
    ) -> Response:
        """The state of the site in Prometheus' format."""
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")


def _describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the problem that every route may answer and how to get in."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        parts = schema.setdefault("components", {})
        parts.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"key": []}]
        app.openapi_schema = schema
    return app.openapi_schema
