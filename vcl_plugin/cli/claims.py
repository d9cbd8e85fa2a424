"""`vcl claims`: read claims and decide them.

In: claim numbers and decisions. Out: claims, segments, history.
"""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from retrieval.database import transaction
from vcl_plugin.claims import REASONS, decide_claim, list_claims, read_claim
from vcl_plugin.cli.output import print_json, print_rows, print_table, stdout
from vcl_plugin.cli.services import AsJson
from vcl_plugin.cli.session import open_engine

app = typer.Typer(help="Claims on uploads, and what became of them.", no_args_is_help=True)

Claim = Annotated[int, typer.Argument(help="The claim's number, see `vcl claims list`.")]
Reason = Annotated[str | None, typer.Option("--reason", "-r", help=f"One of {', '.join(REASONS)}.")]
Note = Annotated[str | None, typer.Option("--note", "-n", help="Anything worth remembering.")]
By = Annotated[str, typer.Option("--by", help="Who decides; default: you.")]


@app.command("list")
def list_(
    status: Annotated[str | None, typer.Option("--status", "-s", help="Only this status.")] = None,
    as_json: AsJson = False,
) -> None:
    """All claims, with the seconds each of them covers."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        rows = list_claims(connection, status)
    print_rows(rows, as_json, empty="no claims")


@app.command()
def show(claim: Claim, as_json: AsJson = False) -> None:
    """One claim: its segments and its history."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        found = read_claim(connection, claim)
    if as_json:
        print_json(found)
        return
    stdout.print(
        f"claim {claim}: {found['owner']}, {found['asset']!r} in {found['query']!r}, "
        f"{found['status']}, {found['seconds']:g} seconds",
        markup=False,
    )
    for part in ("segments", "events"):
        if found[part]:
            print_table(list(found[part][0]), [list(row.values()) for row in found[part]], part)


@app.command()
def confirm(claim: Claim, note: Note = None, by: By = getpass.getuser()) -> None:
    """A potential claim is right: make it active."""
    _decide(claim, "active", by, None, note)


@app.command()
def dispute(
    claim: Claim, reason: Reason = None, note: Note = None, by: By = getpass.getuser()
) -> None:
    """The uploader objects to an active claim."""
    _decide(claim, "disputed", by, reason, note)


@app.command()
def uphold(claim: Claim, note: Note = None, by: By = getpass.getuser()) -> None:
    """A disputed claim stands."""
    _decide(claim, "upheld", by, None, note)


@app.command()
def release(
    claim: Claim, reason: Reason = None, note: Note = None, by: By = getpass.getuser()
) -> None:
    """Give a claim up; its segments leave the infringement reports."""
    _decide(claim, "released", by, reason, note)


def _decide(claim: int, status: str, by: str, reason: str | None, note: str | None) -> None:
    engine = open_engine()
    with transaction(engine.database) as connection:
        decide_claim(connection, claim, status, by, reason, note)
    stdout.print(f"claim {claim} is {status}")
