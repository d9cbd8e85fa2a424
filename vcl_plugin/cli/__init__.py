"""The command `vcl`: one file a group of commands, errors as sentences, results on stdout."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from retrieval.errors import RetrievalError
from vcl_plugin.cli.commands import CommandTable, list_commands
from vcl_plugin.cli.output import complain

app = typer.Typer(
    name="vcl",
    cls=CommandTable,
    help="Find copied video: search uploads, localize copied seconds, report claims.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
list_commands(app)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib import metadata

        print(f"vcl {metadata.version('vcl-plugin')}")
        raise typer.Exit


@app.callback()
def vcl(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and stop.",
        ),
    ] = False,
) -> None:
    """Find copied video: search uploads, localize copied seconds, report claims."""


def main() -> None:
    """Exit code 0: done; 1: failed, with the reason on stderr; 2: wrong usage."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names may be no valid Unicode. In JSON, the escape that is written is right, too.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except RetrievalError as error:
        complain(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
