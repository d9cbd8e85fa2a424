"""`vcl up`, `down`, `status`, `config`, `store`, `psql`: the house itself.

In: settings. Out: running services, a migrated schema, and what state they are in.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text
from sqlalchemy import text

from retrieval import database as db
from retrieval.errors import RetrievalError
from retrieval.services import (
    ensure_services,
    psql_command,
    service_status,
    stop_services,
    wait_for_broker,
    wait_for_database,
)
from retrieval.settings import Settings, describe_settings, load_settings
from retrieval.work.backlog import count_work
from retrieval.work.presence import list_workers
from vcl_plugin.cli.output import AsJson, make_table, print_json, print_rows, stderr, stdout
from vcl_plugin.cli.session import open_engine
from vcl_plugin.reports.cells import plain, shown


def up(as_json: AsJson = False) -> None:
    """Start PostgreSQL and the broker (or reach yours) and bring the schema up to date."""
    settings = load_settings()
    with stderr.status("starting PostgreSQL and the broker"):
        endpoints = ensure_services(settings)
        wait_for_database(endpoints.database_url, settings.service_timeout)
        wait_for_broker(endpoints.broker_url, settings.service_timeout)
        db.migrate(endpoints.database_url)
    services = service_status(settings)
    if as_json:
        print_json([dataclasses.asdict(each) for each in services])
        return
    for each in services:
        stdout.print(f"{each.name:9} {each.kind}, {each.version}, {each.where}", markup=False)
    stderr.print("next: `vcl worker` in another terminal, then `vcl search VIDEO --wait`")


def down(as_json: AsJson = False) -> None:
    """Stop the embedded PostgreSQL and broker, once no worker runs; what is committed stays."""
    settings = load_settings()
    stopped = stop_services(settings, beside_workers=False)
    if as_json:
        print_json({"stopped": stopped})
    else:
        stdout.print(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")


def store(
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Make the folder of this machine the store, whatever it was: after a loss, or "
            "when it was marked by another database.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the store of descriptors and whether it is here, or make this folder the store."""
    identity = open_engine().identity
    if adopt:
        identity.adopt()
    identity.check()
    facts = {"store": str(identity.root), "id": identity.read_id()}
    print_json(facts) if as_json else stdout.print(f"{facts['store']}, {facts['id']}", markup=False)


def psql(context: typer.Context) -> None:
    """Open psql on the database; whatever follows is psql's: `vcl psql -c "SELECT 1"`."""
    settings = load_settings()
    ensure_services(settings)
    command = [*psql_command(settings), *context.args]
    os.execv(command[0], command)


def config(as_json: AsJson = False) -> None:
    """Show every setting, its value and where that came from."""
    print_rows(describe_settings(load_settings()), as_json, empty="")


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")
    ] = 2.0,
    as_json: AsJson = False,
) -> None:
    """What runs, where, in which version, and how much work waits."""
    settings = load_settings()
    if watch:
        _watch(settings, interval, as_json)
        return
    state = _read_state(settings)
    if as_json:
        print_json(state)
    else:
        stdout.print(_draw(state))
        if state["problem"]:
            stderr.print(state["problem"], markup=False)
    if state["problem"]:
        raise typer.Exit(1)


def _watch(settings: Settings, interval: float, as_json: bool) -> None:
    """The same, again and again: redrawn in a terminal, one JSON object a line for a program."""
    with suppress(KeyboardInterrupt):
        if as_json:
            while True:
                print(json.dumps(_read_state(settings), default=plain), flush=True)
                time.sleep(interval)
        first = _draw(_read_state(settings), with_problem=True)
        with Live(first, console=stdout, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(_draw(_read_state(settings), with_problem=True), refresh=True)


def _draw(state: dict[str, Any], with_problem: bool = False) -> RenderableType:
    services = state["services"]
    parts: list[RenderableType] = [
        make_table(list(services[0]), [list(each.values()) for each in services])
    ]
    workers = state["workers"]
    if workers:
        parts.append(make_table(list(workers[0]), [list(each.values()) for each in workers]))
    elif state["counts"] is not None:
        parts.append(Text("no worker runs; start one: vcl worker"))
    counts = state["counts"] or {}
    width = max((len(name) for name in counts), default=0)
    parts += [
        Text(f"{name.replace('_', ' '):{width}}  {shown(value)}") for name, value in counts.items()
    ]
    if with_problem:
        parts.append(Text(state["problem"] or "", style="bold red"))
    return Group(*parts)


def _read_state(settings: Settings) -> dict[str, Any]:
    services = [dataclasses.asdict(each) for each in service_status(settings)]
    counts, workers, problem = _count_work(settings, services)
    return {"services": services, "workers": workers, "counts": counts, "problem": problem}


# Pairs that were compared in the last minute, by the runs they left.
_RATE = """
    SELECT (count(*) / 60.0)::float FROM runs WHERE created_at > now() - interval '1 minute'"""


def _count_work(
    settings: Settings, services: list[dict[str, Any]]
) -> tuple[dict[str, Any] | None, list[dict[str, Any]], str | None]:
    if not services[0]["running"]:
        return None, [], "PostgreSQL is not running; start it with `vcl up`"
    # The embedded server's address holds no password, so it is shown as it is; asking for it in
    # any other way would start what is not running.
    database = db.connect(settings.database_url or services[0]["where"])
    try:
        db.check_schema(database)
        with db.transaction(database) as connection:
            counts: dict[str, Any] = {
                **count_work(connection),
                "pairs_per_second": connection.execute(text(_RATE)).scalar_one(),
            }
            workers = list_workers(connection, settings.sweep_seconds)
    except RetrievalError as error:
        return None, [], str(error)
    if not services[1]["running"]:
        return counts, workers, "the broker is not running; start it with `vcl up`"
    return counts, workers, None
