"""`vcl benchmark`: labelled pairs for `vcl evaluate`, or edited films for the whole engine.

In: real labels, images and videos. Out: a folder of descriptors and labels, or of films.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from retrieval.describe.descriptors import load_descriptor
from retrieval.describe.fitting.material import Split
from retrieval.plugins import load_localizer, load_pooler
from retrieval.settings import load_settings
from vcl_plugin.cli.output import print_json, print_table, progress, stdout
from vcl_plugin.evaluation.benchmark import Order, make_benchmark
from vcl_plugin.evaluation.films import choose_families, plan_uploads
from vcl_plugin.evaluation.sources import find_videos
from vcl_plugin.evaluation.trial import Trial, tabulate, write_truth

app = typer.Typer(help="Make benchmarks: labelled pairs, or edited films.", no_args_is_help=True)


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


@app.command()
def films(
    folder: Annotated[Path, typer.Argument(metavar="FILMS", help="Folder of films of yours.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; what is there is kept.")],
    uploads: Annotated[int, typer.Option(min=5, help="Files to make and search for.")] = 150,
    seed: Annotated[int, typer.Option(help="The same seed makes the same files.")] = 1,
    split: Annotated[
        str, typer.Option(help="all, or train, val, test: which films, by their names.")
    ] = "all",
    without_families: Annotated[
        str, typer.Option(help="Edits to leave out, separated by commas.")
    ] = "",
    methods: Annotated[
        str, typer.Option(help="Separated by commas; all see the same candidates.")
    ] = "transvcl,tn,dtw",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make really edited uploads of your own films, search for them, and say what was found."""
    if split not in ("all", "train", "val", "test"):
        raise typer.BadParameter(f"--split {split}: it is all, train, val or test")
    left_out = [name.strip() for name in without_families.split(",") if name.strip()]
    families = choose_families(left_out)
    localizers = [load_localizer(name.strip()) for name in methods.split(",")]
    settings = load_settings()
    sources = [each for each in find_videos(folder) if split in ("all", each.split)]
    plan = plan_uploads(sources, uploads, seed, families)
    write_truth(plan, out / "truth.json")
    trial = Trial(out, plan, load_descriptor(), settings)
    results = {}
    with progress() as bar:
        tasks: dict[str, Any] = {}

        def on_step(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        trial.prepare(on_step)
        candidates = trial.propose(load_pooler(settings.pooler))
        for localizer in localizers:
            results[localizer.name] = trial.judge(localizer, candidates, on_step)
    rows = {
        name: {"cpu_seconds": spent, "uploads": [asdict(each) for each in found]}
        for name, (found, spent) in results.items()
    }
    (out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if as_json:
        print_json(rows)
        return
    for title, columns, lines in tabulate(results):
        print_table(columns, lines, title)
