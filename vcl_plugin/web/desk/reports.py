"""The reports' pages: charts of where claims stand, and every report as a table.

In: a report's name and what narrows it. Out: its rows, and charts as SVG made here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response

from retrieval.database import transaction
from retrieval.errors import NotFound
from vcl_plugin.claims import queue
from vcl_plugin.reports.cells import is_numeric
from vcl_plugin.reports.reports import REPORTS, read_report
from vcl_plugin.reports.trends import WEEKS, read_error_rates, read_weekly_seconds
from vcl_plugin.web.access import Site
from vcl_plugin.web.desk.charts import stack_weeks
from vcl_plugin.web.desk.pages import Here, PageRoute, Reader, render
from vcl_plugin.web.keys import Viewer

router = APIRouter(route_class=PageRoute)

ROWS = 200
# Reports whose rows name an owner, so that a key for some owners can see its own.
OWNED = frozenset(
    {
        *("infringing_segments", "infringing_uploads", "infringing_seconds_by_asset"),
        *("infringing_seconds_by_owner", "claims_open", "claims_by_territory", "claims_daily"),
        *("held_segments",),
    }
)


@router.get("/reports")
def show_reports(request: Request, viewer: Reader, site: Here) -> Response:
    """Charts, and the list of all reports."""
    with transaction(site.database) as connection:
        weekly = read_weekly_seconds(connection, viewer.owners)
        counts = queue.count_queue(connection, None, viewer.owners)
        rates = read_error_rates(connection, viewer.owners)
    return render(
        request,
        viewer,
        "reports.html",
        stack=stack_weeks(weekly, datetime.now(UTC).date(), WEEKS),
        weekly=weekly,
        counts=counts,
        most=max(1, *counts.values()),
        rates=rates,
        reports=list_reports(viewer),
    )


@router.get("/reports/{name}")
def show_report(
    request: Request, viewer: Reader, site: Here, name: str, owner: str = ""
) -> Response:
    """The first rows of a report; all of them come as CSV or JSON from the API."""
    if name not in list_reports(viewer):
        raise NotFound(f"there is no report {name!r}")
    columns, rows = _read_rows(site, viewer, name, owner)
    return render(
        request,
        viewer,
        "report.html",
        name=name,
        meaning=REPORTS[name],
        columns=columns,
        rows=rows[:ROWS],
        numeric=[is_numeric(column) for column in zip(*rows, strict=True)]
        or [False] * len(columns),
        is_cut=len(rows) > ROWS,
        owner=owner,
    )


def list_reports(viewer: Viewer) -> dict[str, str]:
    """The reports that a viewer may see, and what each means."""
    return {
        name: meaning for name, meaning in REPORTS.items() if viewer.owners is None or name in OWNED
    }


def _read_rows(site: Site, viewer: Viewer, name: str, owner: str) -> tuple[list[str], list[Any]]:
    """At most one row more than is shown, of the owners that may be seen."""
    owners: list[str | None] = [owner or None]
    if viewer.owners is not None:
        owners = [each for each in sorted(viewer.owners) if owner in ("", each)]
    columns: list[str] = []
    rows: list[Any] = []
    with transaction(site.database) as connection:
        for each in owners:
            report = read_report(connection, name, owner=each, limit=ROWS + 1)
            columns = list(report.columns)
            rows += report.rows
    return columns, rows[: ROWS + 1]
