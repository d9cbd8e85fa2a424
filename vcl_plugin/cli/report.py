"""`vcl report`: what was found, for people to read.

In: a report's name. Out: a table, CSV, JSON or an HTML page.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from retrieval.database import transaction
from retrieval.errors import Refused
from vcl_plugin.claims import assets, rights
from vcl_plugin.cli.output import print_rows, print_table, stderr
from vcl_plugin.cli.session import open_site
from vcl_plugin.reports.reports import REPORTS, read_report, write_csv, write_html, write_json


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    html = "html"


def report(
    name: Annotated[
        str | None, typer.Argument(help="A report; without one, the reports are listed.")
    ] = None,
    format: Annotated[
        Format, typer.Option("--format", "-f", help="How to print it.")
    ] = Format.table,
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="Only rows with something since this day (of UTC); their totals are of all time.",
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only this owner's rows.")] = None,
    asset: Annotated[
        str | None, typer.Option(help="Only this asset's rows, by number or title.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many rows.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print a report: one of the SQL views (docs/reference/sql.md)."""
    if as_json:
        format = Format.json
    if name is None:
        rows = [{"report": each, "meaning": meaning} for each, meaning in REPORTS.items()]
        print_rows(rows, as_json, empty="")
        return
    site = open_site()
    with transaction(site.database) as connection:
        # A name that does not exist would give an empty report, which says something else.
        if owner is not None:
            rights.find_owner(connection, owner)
        if asset is not None:
            asset, registrant = assets.find_titled(connection, asset)
            if owner not in (None, registrant or owner):
                raise Refused(f"asset {asset!r} belongs to {registrant!r} and not to {owner!r}")
            owner = owner or registrant
        found = read_report(connection, name, since, owner, asset, limit)
    match format:
        case Format.table if found.rows:
            print_table(found.columns, found.rows, title=None)
        case Format.table:
            narrowed = ", narrowed by your options" if since or owner or asset else ""
            stderr.print(f"nothing to report in {name} ({REPORTS[name]}){narrowed}", markup=False)
        case Format.csv:
            print(write_csv(found), end="")
        case Format.json:
            print(write_json(found))
        case Format.html:
            print(write_html(found))
