"""`vcl index`: build it anew, and see what is in it.

In: the store. Out: an index file and facts about it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from retrieval.work.changes import REFERENCES, UPLOADS
from vcl_plugin.cli.output import AsJson, print_json, stderr, stdout
from vcl_plugin.cli.session import open_engine

app = typer.Typer(help="The index of all references.", no_args_is_help=True)


@app.command()
def build(
    if_due: Annotated[
        bool,
        typer.Option(
            "--if-due",
            help="Only take in what changed, if that is much; a worker does this by itself.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the index anew from the stored descriptors; a large one is trained."""
    engine = open_engine()
    if if_due:
        replicas = (engine.references, engine.uploads)
        made = [each.collection for each in replicas if each.snapshot_if_due()]
        if as_json:
            print_json({"snapshots": made})
        else:
            stdout.print(f"new snapshots: {', '.join(made) or 'none was due'}")
        return
    with stderr.status("building the index"):
        index = engine.build_index()
    if as_json:
        print_json({"videos": len(index), "vectors": index.vectors, "key": engine.index_key})
        return
    stdout.print(f"{len(index)} videos, {index.vectors} vectors, {engine.index_key}")


@app.command()
def info(
    uploads: Annotated[
        bool, typer.Option("--uploads", help="Of old uploads, not of the references.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What the index holds: kind, sizes, age, fingerprint, recall of its last self-test."""
    engine = open_engine()
    replica = {REFERENCES: engine.references, UPLOADS: engine.uploads}[
        UPLOADS if uploads else REFERENCES
    ]
    facts = replica.facts()
    made_at = facts.get("snapshot_made_at")
    if made_at is not None:
        age = datetime.now(UTC) - datetime.fromisoformat(made_at)
        facts["snapshot_age_seconds"] = round(age.total_seconds())
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        stdout.print(f"{name.replace('_', ' '):26} {_show(value)}", markup=False)


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {each:g}" for name, each in value.items())
    return str(value)
