"""Reports: named SQL views, read and written out as table, CSV, JSON or HTML.

In: a view's name. Out: its rows in the format asked for. The views are the contract
(docs/reference/sql.md); Python only formats.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from sqlalchemy import Connection, text

from retrieval.errors import NotFound, Refused
from vcl_plugin.reports.cells import is_numeric, plain, shown, visible

REPORTS = {
    "infringing_segments": "every segment under a standing claim, with both spans and its score",
    "infringing_uploads": "every upload that a standing claim speaks of: by whom, where and when",
    "infringing_seconds_by_asset": "seconds of uploads that an asset fills, overlaps counted once",
    "infringing_seconds_by_owner": "seconds of uploads that an owner's assets fill, counted once",
    "claims_open": "claims that wait for a decision or can still be disputed",
    "claims_by_territory": "what a standing claim does where, and by which policy's version",
    "claims_daily": "claims raised and decided, per day and owner",
    "uploads_by_infringing_share": "uploads and how much of each is copied",
    "segments_by_transformation": "copies by direction and tempo",
    "held_segments": "matches that claim nothing by themselves, and why",
    "reference_conflicts": "references of two owners that share footage",
    "quarantined_pairs": "pairs that could not be compared, and why",
    "search_turnaround": "searches a day and how long they took",
}
_ORDER = {
    "infringing_segments": "claim_id, query_start",
    "infringing_uploads": "claim_id, upload_id",
    "infringing_seconds_by_asset": "infringing_seconds DESC, owner, asset",
    "infringing_seconds_by_owner": "infringing_seconds DESC, owner",
    "claims_open": "claim_id DESC",
    "claims_by_territory": "claim_id DESC, territory",
    "claims_daily": "day DESC, owner",
    "uploads_by_infringing_share": "infringing_share DESC NULLS LAST, query_id, upload_id",
    "segments_by_transformation": "segments DESC",
    "held_segments": "segment_id DESC",
    "reference_conflicts": "found_at DESC, reference_id, reference_start",
    "quarantined_pairs": "pair_id DESC",
    "search_turnaround": "day DESC",
}
# The column that `since` filters, where a report has a time.
_WHEN = {
    "infringing_segments": "found_at",
    "infringing_uploads": "told_at",
    "infringing_seconds_by_asset": "last_found_at",
    "infringing_seconds_by_owner": "last_found_at",
    "claims_open": "raised_at",
    "claims_by_territory": "raised_at",
    "claims_daily": "day",
    "uploads_by_infringing_share": "last_found_at",
    "held_segments": "found_at",
    "reference_conflicts": "found_at",
    "quarantined_pairs": "opened_at",
    "search_turnaround": "day",
}


@dataclass(frozen=True)
class Report:
    """A view's rows as read at one moment."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def read_report(
    connection: Connection,
    name: str,
    since: datetime | None = None,
    owner: str | None = None,
    asset: str | None = None,
    limit: int | None = None,
) -> Report:
    """The rows of a view, narrowed; a filter on a column that the view lacks is refused."""
    statement, values = compose_query(connection, name, since, owner, asset, limit)
    result = connection.execute(text(statement), values)
    return Report(name, list(result.keys()), [tuple(row) for row in result])


def stream_report(
    connection: Connection,
    name: str,
    since: datetime | None = None,
    owner: str | None = None,
    asset: str | None = None,
    limit: int | None = None,
    owners: Collection[str] | None = None,
) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
    """The columns of a view, and its rows as they are asked for; the connection must stay open.

    `owners` confines the reader: a report that does not say whose each row is, is refused.
    """
    statement, values = compose_query(connection, name, since, owner, asset, limit, owners)
    streaming = connection.execution_options(stream_results=True, max_row_buffer=1000)
    result = streaming.execute(text(statement), values)
    return list(result.keys()), (tuple(row) for row in result)


def compose_query(
    connection: Connection,
    name: str,
    since: datetime | None = None,
    owner: str | None = None,
    asset: str | None = None,
    limit: int | None = None,
    owners: Collection[str] | None = None,
) -> tuple[str, dict[str, Any]]:
    """The statement that reads a report, and its parameters."""
    if name not in REPORTS:
        raise NotFound(f"there is no report {name!r}; choose one of {', '.join(REPORTS)}")
    columns = set(connection.execute(text(f"SELECT * FROM {name} LIMIT 0")).keys())
    conditions: list[str] = []
    values: dict[str, Any] = {}
    for column, operator, value in (
        (_WHEN.get(name, "time"), ">=", _in_utc(since, _WHEN.get(name))),
        ("asset", "=", asset),
        ("owner", "=", owner),
    ):
        if value is None:
            continue
        if column not in columns:
            raise Refused(f"the report {name} has no {column} to filter by")
        conditions.append(f"{column} {operator} :{column}")
        values[column] = value
    if owners is not None:
        if "owner" not in columns:
            raise Refused(f"the report {name} concerns all owners", code="forbidden")
        conditions.append("owner = ANY(:owners)")
        values["owners"] = sorted(owners)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    most = "" if limit is None else f"LIMIT {int(limit)}"
    return f"SELECT * FROM {name} {where} ORDER BY {_ORDER[name]} {most}", values


def _in_utc(since: datetime | None, column: str | None) -> datetime | date | None:
    """A time of UTC unless it names a zone, as all days of reports are; for a day, its day.

    Left as it is, PostgreSQL would take it for a time of the server's zone.
    """
    if since is None:
        return None
    since = since.astimezone(UTC) if since.tzinfo else since.replace(tzinfo=UTC)
    return since.date() if column == "day" else since


# Before a sign that begins a formula, full-width ones included, at the start of what may be a cell.
_FORMULA = re.compile(r"(?:^|(?<=[;\t\n]))(?=\s*[=+\-@＝＋－＠])")


def write_csv(report: Report) -> str:
    return "".join(stream_csv(report.columns, report.rows))


def stream_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A CSV, row by row."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        yield _take(buffer)
        writer.writerow([_cell(value) for value in row])
    yield _take(buffer)


def _take(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text


def _cell(value: Any) -> Any:
    """A value in a CSV. A title that begins like a formula would be run by a spreadsheet; so would
    a part of one, by a spreadsheet that ends cells at semicolons or tabs.
    """
    value = plain(value)
    if not isinstance(value, str):
        return value
    # The writer quotes what holds a line feed; a lone carriage return would end the row.
    value = value.replace("\r\n", "\n").replace("\r", "\n")
    value = _FORMULA.sub("'", value)
    return f"'{value}" if value.startswith(("\t", "\n")) else value


def write_json(report: Report) -> str:
    rows = [_as_dict(report.columns, row) for row in report.rows]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def stream_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A list in JSON, a row a line."""
    before = "["
    for row in rows:
        yield before + json.dumps(_as_dict(columns, row), ensure_ascii=False)
        before = ",\n"
    yield "]" if before != "[" else "[]"


def _as_dict(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(columns, (plain(value) for value in row), strict=True))


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
            classes=[
                Markup(' class="number"' if is_numeric(column) else "")
                for column in zip(*report.rows, strict=True)
            ]
            or [""] * len(report.columns),
            written_at=shown(datetime.now(UTC)),
        )
    )


def templates() -> Environment:
    """Pages: whatever is put into one is escaped, and what would act in it made visible."""
    return Environment(
        finalize=show_visibly,
        loader=PackageLoader("vcl_plugin.reports"),
        autoescape=select_autoescape(),
        trim_blocks=True,
        lstrip_blocks=True,
    )


def show_visibly(value: Any) -> Any:
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return visible(value, "\n") if is_text else value
