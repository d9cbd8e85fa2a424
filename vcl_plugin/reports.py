"""Reports: named SQL views, read and written out as table, CSV, JSON or HTML.

In: a view's name. Out: its rows in the format asked for. Called by `vcl report` and the demo.
The views are the contract (docs/sql.md); Python only formats.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from sqlalchemy import Connection, text

from retrieval.errors import NotFound

REPORTS = {
    "infringing_segments": "every segment under a standing claim, with both spans and its score",
    "infringing_seconds_by_asset": "seconds of uploads that an asset fills, overlaps counted once",
    "claims_daily": "claims raised and decided, per day and owner",
}
_ORDER = {
    "infringing_segments": "owner, asset, query, query_start",
    "infringing_seconds_by_asset": "infringing_seconds DESC, owner, asset",
    "claims_daily": "day DESC, owner",
}


@dataclass(frozen=True)
class Report:
    """A view's rows as read at one moment."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def read_report(connection: Connection, name: str) -> Report:
    if name not in REPORTS:
        raise NotFound(f"there is no report {name!r}; choose one of {', '.join(REPORTS)}")
    result = connection.execute(text(f"SELECT * FROM {name} ORDER BY {_ORDER[name]}"))
    return Report(name, list(result.keys()), [tuple(row) for row in result])


def write_csv(report: Report) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(report.columns)
    writer.writerows([[plain(value) for value in row] for row in report.rows])
    return buffer.getvalue()


def write_json(report: Report) -> str:
    rows = [
        dict(zip(report.columns, (plain(value) for value in row), strict=True))
        for row in report.rows
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def write_html(report: Report) -> str:
    """A page of its own: no script, no outside file, prints well."""
    return (
        templates()
        .get_template("report.html")
        .render(
            title=report.name.replace("_", " "),
            meaning=REPORTS[report.name],
            columns=[column.replace("_", " ") for column in report.columns],
            rows=[[shown(value) for value in row] for row in report.rows],
        )
    )


def templates() -> Environment:
    return Environment(
        loader=PackageLoader("vcl_plugin"),
        autoescape=select_autoescape(),
        trim_blocks=True,
        lstrip_blocks=True,
    )


def plain(value: Any) -> Any:
    """A database value as JSON and CSV know it."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value


def shown(value: Any) -> str:
    """A database value as a person reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, Decimal | float):
        return f"{float(value):.2f}".rstrip("0").rstrip(".")
    return str(value)
