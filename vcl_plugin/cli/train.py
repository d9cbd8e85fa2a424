"""`vcl train`: a network by a recipe; `vcl dataset import`: labels to train on.

In: a TOML recipe. Out: a run folder with weights; its path on stdout, progress on stderr.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from vcl_plugin.cli.output import print_json, stderr, stdout
from vcl_plugin.training.datasets import READERS, read_vcsl, write_import
from vcl_plugin.training.recipe import read_recipe

if TYPE_CHECKING:
    from vcl_plugin.training.run import Progress

dataset = typer.Typer(help="Bring labelled data into the layout we read.", no_args_is_help=True)


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Recipe, a TOML file.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder; default: runs/NAME.")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", help="section.key=value laid over the recipe; may be repeated."),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", "-j", min=1, help="Processes to embed frames in.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a network. Killed and started again, it goes on where it was."""
    recipe = read_recipe(config, override or [])
    from vcl_plugin.training.run import Run  # after the recipe is read: torch takes seconds

    folder = out or Path("runs") / recipe.name
    with Bar(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[facts]}"),
        console=stderr,
    ) as bar:  # fmt: skip
        task = bar.add_task("preparing", total=None, facts="")

        def show_views(done: int, total: int) -> None:
            bar.update(
                task, description="embedding", completed=done, total=total, facts=f"{done}/{total}"
            )

        def show_step(progress: Progress) -> None:
            f_score = "" if progress.f_score is None else f" F {progress.f_score:.4f}"
            minutes = progress.seconds_left / 60
            bar.update(
                task,
                description="training",
                completed=progress.step,
                total=progress.steps,
                facts=f"{progress.step}/{progress.steps} loss {progress.loss:.3f}{f_score} "
                f"{minutes:.0f} min left",
            )

        run = Run(recipe, folder, show_step, show_views, processes)
        best = run.train()
    if as_json:
        facts = {"weights": str(best), "validation_f_score": run.best if run.best >= 0 else None}
        print_json({**facts, "hours": run.seconds / 3600})
    else:
        stdout.print(f"{best}", markup=False)


@dataset.callback()
def _group() -> None:
    """Keeps `import` a command of its own while it is the only one."""


@dataset.command("import")
def import_(
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(READERS)}.")],
    labels: Annotated[
        Path, typer.Argument(help="The benchmark's own label file; for vcdb a folder of them.")
    ],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    features: Annotated[
        Path | None, typer.Option(help="Folder of <id>.npy; pairs without them are left out.")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="vcsl: its pair_file_*.csv, which also names negatives.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Turn the own label files of VCSL, VCDB, FIVR-200K or SVD into a folder to train on."""
    if kind not in READERS:
        raise typer.BadParameter(f"{kind} is not one of {', '.join(READERS)}")
    if pairs is not None and kind != "vcsl":
        raise typer.BadParameter("--pairs goes with vcsl alone")
    imported = read_vcsl(labels, pairs) if kind == "vcsl" else READERS[kind](labels)
    counts = write_import(imported, out, features)
    if as_json:
        print_json(counts)
    else:
        stdout.print(
            f"{out}: " + ", ".join(f"{count} {name}" for name, count in counts.items()),
            markup=False,
        )
