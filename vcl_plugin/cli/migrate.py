"""`vcl migrate`: the schema up to date, or, after a question, back to an earlier revision.

In: a revision. Out: a database at that revision; before a step back, what it would drop.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from retrieval import database as db
from retrieval.errors import Refused, ServiceUnavailable
from retrieval.services import (
    backup_command,
    ensure_services,
    wait_for_database,
)
from retrieval.settings import Settings, load_settings
from vcl_plugin.cli.output import AsJson, print_json, stderr, stdout


def migrate(
    revision: Annotated[
        str, typer.Argument(help="head, base or a revision such as 0002.")
    ] = "head",
    yes: Annotated[
        bool, typer.Option("--yes", help="Go back without a question, whatever that drops.")
    ] = False,
    backup: Annotated[
        Path | None, typer.Option(help="Before going back, write the database to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring the database schema to a revision; going back asks first, for it drops data."""
    settings = load_settings()
    url = ensure_services(settings).database_url
    wait_for_database(url, settings.service_timeout)
    losses = db.preview_downgrade(url, revision)
    if losses is not None:
        if backup is not None:
            _write_backup(settings, backup)
        if not yes:
            _ask(settings, revision, losses, backup)
    db.migrate(url, revision)
    reached = db.current_revision(db.connect(url)) or "base"
    print_json({"revision": reached}) if as_json else stdout.print(f"the schema is at {reached}")


def _ask(settings: Settings, revision: str, losses: list[str], backup: Path | None) -> None:
    """Name what goes; only a person at a terminal, or --yes, lets it go."""
    sentence = f"going back to {revision} drops {', '.join(losses) or 'nothing that holds data'}"
    advice = "say --yes to do it, and --backup FILE to keep a copy; stop all workers before"
    if not sys.stdin.isatty():
        raise Refused(f"{sentence}; {advice}")
    stderr.print(f"{sentence}; stop all workers before", markup=False)
    if backup is None and typer.confirm("write a backup first?", default=True, err=True):
        _write_backup(settings, Path(typer.prompt("to which file", "vcl-backup.dump", err=True)))
    if not typer.confirm("go back?", default=False, err=True):
        raise Refused(f"nothing was changed; {advice}")


def _write_backup(settings: Settings, path: Path) -> None:
    if path.exists():
        raise Refused(f"{path} exists; name another file for the backup")
    command, environment = backup_command(settings)
    with path.open("xb") as file:
        path.chmod(0o600)
        done = subprocess.run(
            command, stdout=file, stderr=subprocess.PIPE, text=True, env=environment
        )
    if done.returncode != 0:
        path.unlink()
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise ServiceUnavailable(
            f"no backup was written and nothing was changed ({reason}); use a pg_dump of the "
            "server's version"
        )
    stderr.print(f"the backup is {path}; `pg_restore` reads it", markup=False)
