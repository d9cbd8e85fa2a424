"""`vcl lines`: footage to learn from, and a line reader taught by it.

In: photographs, films and real labels. Out: a folder of described footage, or a weights file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from retrieval.describe.fitting.material import Split
from vcl_plugin.cli.output import print_outcome, progress

app = typer.Typer(
    help="Teach the network that the method `transvcl` ships with.", no_args_is_help=True
)


@app.command()
def footage(
    out: Annotated[Path, typer.Argument(help="Folder to write; what is there is kept.")],
    images: Annotated[Path, typer.Option(help="Folder of photographs (jpg).")],
    videos: Annotated[Path, typer.Option(help="Folder of films.")],
    split: Annotated[str, typer.Option(help="train, val or test: they share no source.")] = "train",
    photographs: Annotated[int, typer.Option(min=1, help="How many of them at most.")] = 400,
    drawn: Annotated[int, typer.Option(min=0, help="Films to draw besides.")] = 12,
    versions: Annotated[int, typer.Option(min=1, help="Edited versions of each source.")] = 3,
    seed: Annotated[int, typer.Option(help="The same seed makes the same edits.")] = 1,
    descriptor: Annotated[str | None, typer.Option(help="Frame descriptor to use.")] = None,
    processes: Annotated[
        int, typer.Option("--processes", "-j", min=1, help="Processes that describe.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Describe films and photographs, clean and really edited."""
    from vcl_plugin.training.footage import fill_footage, plan_jobs

    if split not in ("train", "val", "test"):
        raise typer.BadParameter(f"--split {split}: it is train, val or test")
    jobs = plan_jobs(images, videos, out, cast(Split, split), photographs, drawn)
    with progress() as bar:
        task = bar.add_task("sources", total=len(jobs))
        fill_footage(
            jobs,
            versions,
            seed,
            descriptor,
            processes,
            lambda done, total: bar.update(task, completed=done),
        )
    print_outcome(f"{out}: {len(jobs)} sources", {"sources": len(jobs)}, as_json)


@app.command()
def train(
    footage: Annotated[Path, typer.Argument(help="Folder that `vcl lines footage` filled.")],
    geometry: Annotated[
        list[Path], typer.Option(help="JSON rows of real copies; may be repeated.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Weights file to write.")],
    steps: Annotated[int, typer.Option(min=1, help="Steps of 8 pairs.")] = 3600,
    seed: Annotated[int, typer.Option(help="The same seed cuts the same pairs.")] = 1,
    start: Annotated[Path | None, typer.Option(help="Weights to go on from.")] = None,
    min_score: Annotated[
        float, typer.Option(min=0, max=1, help="Threshold that the file brings.")
    ] = 0.7,
    processes: Annotated[
        int, typer.Option("--processes", "-j", min=1, help="Processes that cut pairs.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Teach a line reader. Killed and started again, it goes on where it was."""
    from retrieval.describe.descriptors import load_descriptor
    from vcl_plugin.model.reader_file import ReaderFacts, save_reader
    from vcl_plugin.training.lines import Course, teach_reader

    state = out.with_suffix(".state")
    course = Course(footage, tuple(geometry), steps, seed, processes, start, state)
    with progress() as bar:
        task = bar.add_task("learning", total=steps)
        reader = teach_reader(course, lambda done, total, facts: bar.update(task, completed=done))
    history = {"steps": steps, "seed": seed, "footage": len([*footage.glob("*.npz")])}
    facts = ReaderFacts(min_score, load_descriptor().fingerprint.key, history)
    name = save_reader(reader, out, facts)
    state.unlink(missing_ok=True)
    print_outcome(f"{out}: {name}", {"weights": str(out), "fingerprint": name}, as_json)
