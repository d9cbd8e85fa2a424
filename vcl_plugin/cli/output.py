"""How commands speak: tables or JSON on stdout, progress and complaints on stderr.

In: rows. Out: text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from retrieval.errors import RetrievalError
from vcl_plugin.reports.cells import is_numeric, plain, shown, visible

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class _Console(Console):
    """A console on which a title cannot act: what is said in plain text is made visible."""

    def print(self, *objects: Any, **options: Any) -> None:
        seen = [visible(each, "\n") if isinstance(each, str) else each for each in objects]
        super().print(*seen, **options)


# A pipe or a file has no width; a table in it is as wide as what it holds.
stdout = _Console(highlight=False, width=None if sys.stdout.isatty() else 4096)
stderr = _Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=plain))


def print_outcome(sentence: str, facts: dict[str, Any], as_json: bool) -> None:
    """What a command has done: a sentence, or the same as JSON."""
    if as_json:
        print_json(facts)
    else:
        stdout.print(sentence, markup=False, soft_wrap=True)


def print_rows(
    rows: Sequence[dict[str, Any]],
    as_json: bool,
    empty: str,
    columns: Sequence[str] | None = None,
    title: str | None = None,
) -> None:
    """Rows as JSON or as a table; `empty` is said instead of a table without rows."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        stderr.print(empty)
        return
    print_table(columns or list(rows[0]), [list(row.values()) for row in rows], title)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None) -> None:
    if title:
        stdout.print(f"\n[bold]{escape(title)}[/]")
    stdout.print(make_table(columns, rows))


def make_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    for number, column in enumerate(columns):
        justify: Literal["left", "right"] = (
            "right" if is_numeric(row[number] for row in rows) else "left"
        )
        # Folded, never cut: an id that ends in dots cannot be typed into the next command.
        table.add_column(column.replace("_", " "), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*[escape(shown(value)) for value in row])
    return table


def complain(error: RetrievalError) -> None:
    stderr.print(f"[bold red]vcl:[/] {escape(str(error))} [dim]({error.code})[/]")


def progress() -> Progress:
    """A bar on stderr that vanishes when it is done."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        console=stderr,
        transient=True,
    )


def by_territory(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a table: what is done where stands in the place of the strictest action alone."""
    left = {name: value for name, value in row.items() if name not in ("actions", "territories")}
    return {**left, "action": row["actions"]}


def say_expired(claims: Sequence[int]) -> str:
    """The end of a sentence about a rule that took claims their evidence."""
    numbers = ", ".join(map(str, claims))
    return f"; claims without evidence expired: {numbers}" if claims else ""
