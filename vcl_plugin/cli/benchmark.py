"""`vcl benchmark`: build the folders that `vcl evaluate` judges on.

In: real labels, images and videos. Out: a folder of descriptors and labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from retrieval.describe.fitting.material import Split
from retrieval.settings import load_settings
from vcl_plugin.cli.output import print_json, progress, stdout
from vcl_plugin.evaluation.benchmark import Order, make_benchmark

app = typer.Typer(help="Build benchmark folders from real copy geometry.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `make` a command of its own while it is the only one."""


@app.command()
def make(
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    geometry: Annotated[
        list[Path], typer.Option(help="JSON rows of real copies; may be repeated.")
    ],
    images: Annotated[Path, typer.Option(help="Folder of photographs.")],
    videos: Annotated[Path, typer.Option(help="Folder of footage.")],
    seed: Annotated[int, typer.Option(help="The same seed builds the same folder.")] = 0,
    split: Annotated[
        str, typer.Option(help="train, val or test: they share no image, video or event.")
    ] = "test",
    copies: Annotated[int, typer.Option(min=1, help="Pairs that hold copies.")] = 300,
    negatives: Annotated[int, typer.Option(min=0, help="Pairs that hold none.")] = 300,
    max_frames: Annotated[
        int, typer.Option(min=20, help="Longest video in seconds; longer labels are not used.")
    ] = 500,
    bank: Annotated[
        Path | None, typer.Option(help="Where descriptors are kept between builds.")
    ] = None,
    descriptor: Annotated[str | None, typer.Option(help="Frame descriptor to use.")] = None,
    processes: Annotated[
        int, typer.Option("--processes", "-j", min=1, help="Processes to embed in.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build a folder of labelled pairs: real geometry, real frames, the edits of uploaders."""
    if split not in ("train", "val", "test"):
        raise typer.BadParameter(f"--split {split}: it is train, val or test")
    order = Order(
        geometry=tuple(geometry),
        images=images,
        videos=videos,
        seed=seed,
        split=cast(Split, split),
        copies=copies,
        negatives=negatives,
        max_frames=max_frames,
    )
    with progress() as bar:
        task = bar.add_task("embedding", total=1)
        recipe = make_benchmark(
            order,
            out,
            bank or load_settings().home / "bank",
            descriptor,
            processes,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(recipe)
    else:
        kinds = ", ".join(f"{count} {kind}" for kind, count in recipe["kinds"].items())
        stdout.print(f"{out}: {kinds}; {recipe['views']} frames of {recipe['descriptor']}")
