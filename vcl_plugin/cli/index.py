"""`vcl index`: build it anew, and see what is in it.

In: the store. Out: an index file and facts about it.
"""

from __future__ import annotations

import typer

from vcl_plugin.cli.output import print_json, stderr, stdout
from vcl_plugin.cli.services import AsJson
from vcl_plugin.cli.session import open_engine

app = typer.Typer(help="The FAISS index of all references.", no_args_is_help=True)


@app.command()
def build(as_json: AsJson = False) -> None:
    """Make the index anew from the stored descriptors."""
    engine = open_engine()
    with stderr.status("building the index"):
        index = engine.build_index()
    if as_json:
        print_json({"videos": len(index), "vectors": index.vectors, "key": engine.index_key})
        return
    stdout.print(f"{len(index)} videos, {index.vectors} vectors, {engine.index_key}")


@app.command()
def info(as_json: AsJson = False) -> None:
    """What the index holds, and which descriptor and pooler made it."""
    engine = open_engine()
    index = engine.refresh_index()
    facts = {
        "videos": len(index),
        "vectors": index.vectors,
        "dimension": index.dimension,
        "fingerprint": engine.descriptor.fingerprint.key,
        "pooler": engine.pooler.fingerprint,
        "last_change": index.seq,
        "folder": str(engine.settings.index_dir),
    }
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        stdout.print(f"{name.replace('_', ' '):12} {value}", markup=False)
