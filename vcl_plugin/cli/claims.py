"""`vcl claims`: read claims and decide them, one, several, or all that a filter means.

In: claim numbers or filters, and decisions. Out: claims, segments, history; outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from retrieval.database import transaction
from vcl_plugin.claims import decisions, queue
from vcl_plugin.claims.claims import REASONS, TRANSITIONS
from vcl_plugin.claims.decisions import Decision, Outcome
from vcl_plugin.claims.queue import ClaimFilter
from vcl_plugin.claims.rights import find_owner
from vcl_plugin.cli.filters import takes_filter
from vcl_plugin.cli.output import (
    AsJson,
    by_territory,
    print_json,
    print_outcome,
    print_rows,
    print_table,
    stderr,
    stdout,
)
from vcl_plugin.cli.session import Site, current_user, open_engine, open_site

app = typer.Typer(help="Claims on uploads, and what became of them.", no_args_is_help=True)

COLUMNS = (
    *("id", "status", "action", "owner", "asset", "query", "query_id", "seconds"),
    *("segment_count", "score", "created_at", "uploader", "times_uploaded", "assignee"),
)
Claim = Annotated[int, typer.Argument(help="The claim's number, see `vcl claims list`.")]
Claims = Annotated[
    list[int] | None,
    typer.Argument(metavar="[CLAIM]...", help="Numbers of claims; or say which by a filter."),
]
Reason = Annotated[str | None, typer.Option("--reason", "-r", help=f"One of {', '.join(REASONS)}.")]
Note = Annotated[str | None, typer.Option("--note", "-n", help="Anything worth remembering.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides; default: you.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Count what would change, and change nothing.")
]


@app.command("list")
@takes_filter
def list_(
    wanted: ClaimFilter,
    sort: Annotated[
        str, typer.Option("--sort", help=f"One of {', '.join(queue.SORTS)}.")
    ] = "newest",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 1000,
    after: Annotated[str | None, typer.Option("--after", help="Where the last page ended.")] = None,
    as_json: AsJson = False,
) -> None:
    """Claims, the newest first, with the seconds each of them covers."""
    with transaction(open_site().database) as connection:
        if wanted.owner is not None:
            find_owner(connection, wanted.owner)
        page = queue.list_queue(connection, wanted, None, sort, limit, after)
    rows = [dict(row) for row in page.claims]
    if not as_json:
        rows = [{name: by_territory(row)[name] for name in COLUMNS} for row in rows]
    print_rows(rows, as_json, empty="no claims")
    if page.next is not None:
        stderr.print(f"there are more: --after {page.next}", markup=False)


@app.command()
@takes_filter
def count(wanted: ClaimFilter, as_json: AsJson = False) -> None:
    """How many claims there are by status."""
    with transaction(open_site().database) as connection:
        counts = queue.count_queue(connection, wanted)
    rows = [{"status": status, "claims": number} for status, number in counts.items()]
    print_json(counts) if as_json else print_rows(rows, False, empty="")


@app.command("export-labels")
def export_labels(
    out: Annotated[Path, typer.Argument(help="Folder to write; `vcl train` reads it.")],
    as_json: AsJson = False,
) -> None:
    """Write what reviewers decided as weak labels (copy or not), to train on."""
    from vcl_plugin.training.reviews import export_labels as write_labels

    counts = write_labels(open_engine(), out)
    found = ", ".join(f"{n} {kind}" for kind, n in counts.items())
    print_outcome(f"{out}: {found}", counts, as_json)


@app.command()
def show(claim: Claim, as_json: AsJson = False) -> None:
    """One claim: the uploads it speaks of, its segments, its history and the notes on it."""
    with transaction(open_site().database) as connection:
        found = decisions.read_history(connection, claim)
    if as_json:
        print_json(found)
        return
    assigned = f"; {found['assignee']} looks at it" if found["assignee"] else ""
    stdout.print(
        f"claim {claim}: {found['owner']}, {found['asset']!r} in {found['query']!r}, "
        f"{found['status']}, {found['seconds']:g} seconds; {found['actions']}{assigned}",
        markup=False,
    )
    for part in ("uploads", "segments", "events", "notes"):
        if found[part]:
            print_table(list(found[part][0]), [list(row.values()) for row in found[part]], part)


@app.command()
@takes_filter
def confirm(
    wanted: ClaimFilter,
    claims: Claims = None,
    note: Note = None,
    by: By = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Potential claims are right: make them active."""
    decision = Decision("confirm", by or current_user(), note=note)
    _decide(claims, wanted, decision, dry_run, as_json)


@app.command()
@takes_filter
def dispute(
    wanted: ClaimFilter,
    claims: Claims = None,
    reason: Reason = None,
    note: Note = None,
    by: By = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """The uploader objects to active claims."""
    decision = Decision("dispute", by or current_user(), reason, note)
    _decide(claims, wanted, decision, dry_run, as_json)


@app.command()
@takes_filter
def uphold(
    wanted: ClaimFilter,
    claims: Claims = None,
    note: Note = None,
    by: By = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Disputed claims stand."""
    decision = Decision("uphold", by or current_user(), note=note)
    _decide(claims, wanted, decision, dry_run, as_json)


@app.command()
@takes_filter
def release(
    wanted: ClaimFilter,
    claims: Claims = None,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", help=f"Needed: one of {', '.join(REASONS)}.")
    ] = None,
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
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give claims up; their segments leave the infringement reports."""
    verb = "exclude" if exclude else "release"
    _decide(claims, wanted, Decision(verb, by or current_user(), reason, note), dry_run, as_json)


@app.command()
def undo(
    claims: Annotated[list[int], typer.Argument(help="Numbers of claims.")],
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Take your last decision about claims back, within a minute."""
    site, outcomes = open_site(), []
    for claim in sorted(set(claims)):
        with transaction(site.database) as connection:
            outcomes.append(decisions.undo_decision(connection, claim, by or current_user()))
    said = "; ".join(f"claim {each.claim_id} is {each.status} again" for each in outcomes)
    print_outcome(said, {"outcomes": [asdict(each) for each in outcomes]}, as_json)


@app.command()
def note(
    claim: Claim,
    words: Annotated[str, typer.Argument(help="What is to be remembered.")],
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Write a note on a claim; its status stays."""
    with transaction(open_site().database) as connection:
        decisions.add_note(connection, claim, by or current_user(), words)
    print_outcome(f"claim {claim} has the note", {"claim": claim, "note": words}, as_json)


@app.command()
@takes_filter
def assign(
    wanted: ClaimFilter,
    claims: Claims = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Who looks at them; without it nobody does.")
    ] = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Say who looks at claims."""
    site = open_site()
    ids = _find_claims(site, claims, wanted)
    with transaction(site.database) as connection:
        decisions.assign_claims(connection, ids, to, by or current_user())
    print_outcome(
        f"{_count(len(ids))} assigned to {to or 'nobody'}", {"claims": ids, "to": to}, as_json
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
    from vcl_plugin.reports.evidence import write_evidence

    path = output or Path(f"claim-{claim}.html")
    write_evidence(open_engine(), path, claim_ids=[claim])
    print_outcome(str(path), {"claim": claim, "path": str(path)}, as_json)


def _decide(
    claims: Sequence[int] | None,
    wanted: ClaimFilter,
    decision: Decision,
    dry_run: bool,
    as_json: bool,
) -> None:
    """One claim: what became of it, or the error. Several: how many, and why others were left."""
    site = open_site()
    if claims is not None and len(claims) == 1 and not wanted.as_dict():
        with transaction(site.database) as connection:
            outcome = decisions.decide(connection, claims[0], decision, dry_run=dry_run)
        _print_one(outcome, decision, dry_run, as_json)
        return
    if not claims and not wanted.status:
        # Of all that a filter means, those that can be decided so.
        able = tuple(each for each, ways in TRANSITIONS.items() if decision.status in ways)
        ids = _find_claims(site, claims, wanted, replace(wanted, status=able))
    else:
        ids = _find_claims(site, claims, wanted)
    outcomes = decisions.decide_many(site.database, ids, decision, dry_run=dry_run)
    changed = [each for each in outcomes if each.is_changed]
    refused = [each for each in outcomes if not each.is_changed]
    if as_json:
        print_json(
            {
                **{"changed": len(changed), "refused": len(refused), "dry_run": dry_run},
                "outcomes": [asdict(each) for each in outcomes],
            }
        )
    else:
        now = "is now" if len(changed) == 1 else "are now"
        would = "would become" if dry_run else now
        stdout.print(f"{_count(len(changed))} {would} {decision.status}", markup=False)
        for each in refused:
            stderr.print(f"vcl: {each.message} ({each.reason})", markup=False)
    if refused:
        raise typer.Exit(1)


def _print_one(outcome: Outcome, decision: Decision, dry_run: bool, as_json: bool) -> None:
    claim, status = outcome.claim_id, outcome.status
    facts: dict[str, Any] = {
        "claim": claim,
        "status": status,
        **({"dry_run": True} if dry_run else {}),
    }
    said = f"claim {claim} {'would become' if dry_run else 'is'} {status}"
    if decision.verb == "exclude" and not dry_run:
        siblings = list(outcome.released_with_it)
        facts["released_with_it"] = siblings
        said += ", its footage excluded"
        said += f"; released with it: {', '.join(map(str, siblings))}" if siblings else ""
    print_outcome(said, facts, as_json)


def _find_claims(
    site: Site,
    claims: Sequence[int] | None,
    wanted: ClaimFilter,
    narrowed: ClaimFilter | None = None,
) -> list[int]:
    """The claims that a person names by number or by filter; naming none is wrong usage."""
    if bool(claims) == bool(wanted.as_dict()):
        raise typer.BadParameter("name claims by number, or say which by a filter such as --owner")
    if claims:
        return sorted(set(claims))
    with transaction(site.database) as connection:
        if wanted.owner is not None:
            find_owner(connection, wanted.owner)
        return queue.list_ids(connection, narrowed or wanted)


def _count(number: int) -> str:
    return "1 claim" if number == 1 else f"{number} claims"
