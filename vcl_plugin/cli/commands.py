"""The table of commands: where each is written, so that only the one asked for is imported.

In: the name of a command. Out: that command, its module imported; of the others only their help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup


@dataclass(frozen=True, slots=True)
class Entry:
    """One command, or group of commands, of `vcl`."""

    place: str  # module of this package, and the function or Typer in it
    help: str  # what its own help begins with; a test compares them
    settings: Mapping[str, Any] = field(default_factory=dict)  # how its arguments are parsed


COMMANDS = {
    "up": Entry(
        "services:up",
        "Start PostgreSQL and the broker (or reach yours) and bring the schema up to date.",
    ),
    "down": Entry(
        "services:down",
        "Stop the embedded PostgreSQL and broker, once no worker runs; what is committed stays.",
    ),
    "status": Entry(
        "services:status", "What runs, where, in which version, and how much work waits."
    ),
    "doctor": Entry(
        "doctor:doctor",
        "Check Python, services, schema, workers, weights, device and disk; say what to do.",
    ),
    "metrics": Entry(
        "metrics:metrics",
        "Print metrics once, or serve them to Prometheus until stopped (docs/how-to/operate.md).",
    ),
    "config": Entry("services:config", "Show every setting, its value and where that came from."),
    "migrate": Entry(
        "migrate:migrate",
        "Bring the database schema to a revision; going back asks first, for it drops data.",
    ),
    "store": Entry(
        "services:store",
        "Show the store of descriptors and whether it is here, or make this folder the store.",
    ),
    "psql": Entry(
        "services:psql",
        'Open psql on the database; whatever follows is psql\'s: `vcl psql -c "SELECT 1"`.',
        {"allow_extra_args": True, "ignore_unknown_options": True},
    ),
    "worker": Entry(
        "worker:worker",
        "Run a worker until it is stopped (Ctrl-C, or SIGTERM: work in hand is finished first).",
    ),
    "serve": Entry(
        "serve:serve", "Serve the API and the desk until stopped (docs/how-to/serve.md)."
    ),
    "ingest": Entry(
        "ingest:ingest",
        "Describe every video of a folder; with --owner or --asset they become references.",
    ),
    "search": Entry(
        "search:search", "Search videos against all references; workers do it (see `vcl worker`)."
    ),
    "searches": Entry("searches:app", "Searches that were asked for."),
    "retry": Entry(
        "search:retry",
        "Compare again what was given up; searches that ended incomplete are opened again.",
    ),
    "rescan": Entry(
        "search:rescan",
        "Look for a reference in all uploads of the past; nothing is decoded again.",
    ),
    "localize": Entry(
        "localize:localize",
        "Find the copied segments between two videos; needs no database and no worker.",
    ),
    "why": Entry("why:why", "Say why an upload is, or is not, claimed for a reference."),
    "show": Entry(
        "show:show",
        "Draw the similarity of two videos with the segments found, and how the network sees them.",
    ),
    "evaluate": Entry(
        "evaluate:evaluate",
        "Judge a method on labelled pairs: segment precision, recall and F, and video-level "
        "errors.",
    ),
    "train": Entry(
        "train:train", "Train a network. Killed and started again, it goes on where it was."
    ),
    "lines": Entry("lines:app", "Teach the network that the method `transvcl` ships with."),
    "report": Entry(
        "report:report", "Print a report: one of the SQL views (docs/reference/sql.md)."
    ),
    "demo": Entry(
        "demo:demo",
        "The whole way once: render videos, plant copies, search, report; and the desk.",
    ),
    "asset": Entry("catalogue:asset", "Works that somebody owns."),
    "reference": Entry("catalogue:reference", "Videos that show an asset."),
    "index": Entry("index:app", "The index of all references."),
    "claims": Entry("claims:app", "Claims on uploads, and what became of them."),
    "key": Entry("key:app", "Keys of the API and the desk."),
    "webhook": Entry("webhook:app", "Addresses that are told what happens."),
    "policy": Entry("policy:app", "What an owner wants done with a match."),
    "benchmark": Entry("benchmark:app", "Make benchmarks: labelled pairs, or edited films."),
    "dataset": Entry("train:dataset", "Bring labelled data into the layout we read."),
}


class CommandTable(TyperGroup):
    """The group behind `vcl`: lists every command by its entry, imports the one that is run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and load_command(listed.name or ""), rest


def list_commands(app: typer.Typer) -> None:
    """Give the application a command for each entry, which has a name and help and does nothing."""
    for name, entry in COMMANDS.items():
        app.command(name, help=entry.help)(_listed)


def load_command(name: str) -> Any:
    """The command itself, made from the function or group that its module holds."""
    entry = COMMANDS[name]
    module, _, attribute = entry.place.partition(":")
    found = getattr(import_module(f"vcl_plugin.cli.{module}"), attribute)
    parent = typer.Typer(callback=_listed)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name, context_settings=dict(entry.settings))(found)
    group = typer.main.get_command(parent)
    assert isinstance(group, TyperGroup)
    return group.commands[name]


def _listed() -> None:
    """Stands for a command whose module is not imported yet."""
