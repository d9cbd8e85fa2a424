"""`/api/v1/reports`: the SQL views, streamed as JSON or CSV.

In: a report's name and what narrows it. Out: its rows, however many; a key with owners gets theirs,
and no report that does not say whose each row is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from retrieval.database import transaction
from vcl_plugin.reports.reports import REPORTS, stream_csv, stream_json, stream_report
from vcl_plugin.web.parameters import AskedName, Here, Reader
from vcl_plugin.web.routing import make_router

router = make_router("/reports", "reports")

PIECE = 1 << 16  # letters that are sent at once


class ReportRow(BaseModel):
    report: str
    meaning: str


CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the rows; their columns are those of the view (docs/reference/sql.md)",
        "content": {
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}


@router.get("", response_model=list[ReportRow])
def list_reports(viewer: Reader) -> Any:
    """Every report and what it tells."""
    return [{"report": name, "meaning": meaning} for name, meaning in REPORTS.items()]


@router.get("/{name}", response_class=StreamingResponse, responses=CONTENT)
def read_report(
    viewer: Reader,
    site: Here,
    name: Annotated[str, Path(max_length=200)],
    format: Annotated[Literal["json", "csv"], Query()] = "json",
    since: Annotated[
        datetime | None, Query(description="only rows with something since then; UTC without zone")
    ] = None,
    owner: AskedName = None,
    asset: Annotated[str | None, Query(max_length=1000, description="title of an asset")] = None,
    limit: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
) -> StreamingResponse:
    """A report, streamed whole or `limit` rows of it."""
    stack = ExitStack()
    try:
        connection = stack.enter_context(transaction(site.database))
        columns, rows = stream_report(connection, name, since, owner, asset, limit, viewer.owners)
    except BaseException as error:
        # As `with` does it: the transaction tells what PostgreSQL says as a sentence.
        if not stack.__exit__(type(error), error, error.__traceback__):
            raise
        raise AssertionError("a transaction hides no error") from error
    write = stream_csv if format == "csv" else stream_json
    pieces = _gather(write(columns, rows), stack)
    next(pieces)  # from here on it closes the transaction, whatever becomes of it
    return StreamingResponse(
        pieces,
        media_type="text/csv; charset=utf-8" if format == "csv" else "application/json",
        headers={"Content-Disposition": f'inline; filename="{name}.{format}"'},
    )


def _gather(parts: Iterable[str], stack: ExitStack) -> Iterator[str]:
    """Larger pieces of a stream; first of all an empty one."""
    with stack:
        yield ""
        gathered, letters = [], 0
        for part in parts:
            gathered.append(part)
            letters += len(part)
            if letters >= PIECE:
                yield "".join(gathered)
                gathered, letters = [], 0
        yield "".join(gathered)
