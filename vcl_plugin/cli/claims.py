"""`vcl claims`: read claims and decide them.

In: claim numbers and decisions. Out: claims, segments, history.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from retrieval.database import transaction
from vcl_plugin.claims.claims import (
    REASONS,
    TRANSITIONS,
    decide_claim,
    list_claims,
    read_claim,
)
from vcl_plugin.claims.release import release_and_exclude
from vcl_plugin.claims.rights import find_owner
from vcl_plugin.cli.output import (
    AsJson,
    by_territory,
    print_json,
    print_outcome,
    print_rows,
    print_table,
    stdout,
)
from vcl_plugin.cli.session import current_user, open_engine
from vcl_plugin.reports.evidence import write_evidence
from vcl_plugin.training.reviews import export_labels as write_labels

app = typer.Typer(help="Claims on uploads, and what became of them.", no_args_is_help=True)

Claim = Annotated[int, typer.Argument(help="The claim's number, see `vcl claims list`.")]
Reason = Annotated[str | None, typer.Option("--reason", "-r", help=f"One of {', '.join(REASONS)}.")]
Note = Annotated[str | None, typer.Option("--note", "-n", help="Anything worth remembering.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides; default: you.")]


@app.command("list")
def list_(
    status: Annotated[str | None, typer.Option("--status", "-s", help="Only this status.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Only this owner's.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Claims, the newest first, with the seconds each of them covers."""
    if status is not None and status not in TRANSITIONS:
        raise typer.BadParameter(f"{status!r} is none of {', '.join(TRANSITIONS)}")
    engine = open_engine()
    with transaction(engine.database) as connection:
        if owner is not None:
            find_owner(connection, owner)
        rows = list_claims(connection, status, owner=owner, limit=limit)
    if not as_json:
        rows = [by_territory(row) for row in rows]
    print_rows(rows, as_json, empty="no claims")


@app.command("export-labels")
def export_labels(
    out: Annotated[Path, typer.Argument(help="Folder to write; `vcl train` reads it.")],
    as_json: AsJson = False,
) -> None:
    """Write what reviewers decided as weak labels (copy or not), to train on."""
    engine = open_engine()
    counts = write_labels(engine, out)
    found = ", ".join(f"{n} {kind}" for kind, n in counts.items())
    print_outcome(f"{out}: {found}", counts, as_json)


@app.command()
def show(claim: Claim, as_json: AsJson = False) -> None:
    """One claim: the uploads it speaks of, its segments and its history."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        found = read_claim(connection, claim)
    if as_json:
        print_json(found)
        return
    stdout.print(
        f"claim {claim}: {found['owner']}, {found['asset']!r} in {found['query']!r}, "
        f"{found['status']}, {found['seconds']:g} seconds; {found['actions']}",
        markup=False,
    )
    for part in ("uploads", "segments", "events"):
        if found[part]:
            print_table(list(found[part][0]), [list(row.values()) for row in found[part]], part)


@app.command()
def confirm(claim: Claim, note: Note = None, by: By = None, as_json: AsJson = False) -> None:
    """A potential claim is right: make it active."""
    _decide(claim, "active", by, None, note, as_json)


@app.command()
def dispute(
    claim: Claim,
    reason: Reason = None,
    note: Note = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """The uploader objects to an active claim."""
    _decide(claim, "disputed", by, reason, note, as_json)


@app.command()
def uphold(claim: Claim, note: Note = None, by: By = None, as_json: AsJson = False) -> None:
    """A disputed claim stands."""
    _decide(claim, "upheld", by, None, note, as_json)


@app.command()
def release(
    claim: Claim,
    reason: Reason = None,
    note: Note = None,
    by: By = None,
    exclude: Annotated[
        bool,
        typer.Option(
            "--exclude",
            help="Exclude the matched footage of the reference too, and release every claim that "
            "rests on nothing else.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give a claim up; its segments leave the infringement reports."""
    if not exclude:
        _decide(claim, "released", by, reason, note, as_json)
        return
    engine = open_engine()
    with transaction(engine.database) as connection:
        siblings = release_and_exclude(connection, claim, by or current_user(), reason, note)
    others = f"; released with it: {', '.join(map(str, siblings))}" if siblings else ""
    print_outcome(
        f"claim {claim} is released, its footage excluded{others}",
        {"claim": claim, "status": "released", "released_with_it": siblings},
        as_json,
    )


@app.command()
def evidence(
    claim: Claim,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where; default: claim-N.html.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a claim's evidence as one HTML file that needs nothing else and prints well."""
    engine = open_engine()
    path = output or Path(f"claim-{claim}.html")
    write_evidence(engine, path, claim_ids=[claim])
    print_outcome(str(path), {"claim": claim, "path": str(path)}, as_json)


def _decide(
    claim: int, status: str, by: str | None, reason: str | None, note: str | None, as_json: bool
) -> None:
    engine = open_engine()
    with transaction(engine.database) as connection:
        decide_claim(connection, claim, status, by or current_user(), reason, note)
    print_outcome(f"claim {claim} is {status}", {"claim": claim, "status": status}, as_json)
