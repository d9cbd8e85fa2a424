"""`vcl demo`: the whole way once, on footage with known copies.

In: a folder. Out: videos, a table of what was planted and found, and a page of evidence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcl_plugin.cli.output import stderr, stdout
from vcl_plugin.demo.demo import run_demo, serve_desk


def demo(
    folder: Annotated[
        Path, typer.Option("--folder", help="Where the videos and the page are written.")
    ] = Path("demo-output"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the services running afterwards.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the desk with the demo's claims until stopped.")
    ] = False,
) -> None:
    """The whole way once: render videos, plant copies, search, report; and the desk."""
    is_right = run_demo(folder, stdout, stderr, keep or serve)
    if serve:
        serve_desk(folder, stdout, keep)
    if not is_right:
        raise typer.Exit(1)
    stderr.print(
        'try next: vcl up, then the commands under "Use it" in README.md; '
        "vcl serve for the API and the desk",
        markup=False,
    )
