"""`vcl localize`: the copied segments between two files, without any service.

In: two videos, or arrays of descriptors. Out: segments on stdout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from retrieval.describe.descriptors import load_descriptor
from retrieval.description import describe_video
from retrieval.pairing import localize_views
from retrieval.plugins import load_localizer
from retrieval.settings import Settings, load_settings
from retrieval.store import StoredDescriptors, read_descriptors
from vcl_plugin.cli.output import AsJson, print_rows, progress

ARRAYS = (".npy", ".safetensors")


def localize(
    query: Annotated[Path, typer.Argument(help="Video file, or .npy descriptors.")],
    reference: Annotated[Path, typer.Argument(help="Video file, or .npy descriptors.")],
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="transvcl, tn, hv, dp, dtw or spd.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", "-w", help="Weights file of the method.")
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Show segments from this score on (transvcl, spd); else the method's threshold.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the copied segments between two videos; needs no database and no worker."""
    settings = load_settings()
    chosen = method or settings.localizer
    if weights is None and chosen == settings.localizer and settings.weights:
        weights = Path(settings.weights)
    options = {} if min_score is None else {"min_score": min_score}
    localizer = load_localizer(chosen, weights=weights, **options)
    asked, known = (read_input(path, settings) for path in (query, reference))
    [found] = localize_views(localizer, asked, [known])
    segments = [each.as_dict() for each in found]
    print_rows(
        segments,
        as_json,
        empty="no copied segment was found (of transvcl, --min-score 0.5 shows weaker ones)",
    )


def read_input(path: Path, settings: Settings) -> StoredDescriptors:
    """What a search would see of a file that a command was given: a video, or an array."""
    if path.suffix in ARRAYS:
        return read_descriptors(path)
    descriptor = load_descriptor(settings.descriptor)
    with progress() as bar:
        task = bar.add_task(f"describing {path.name}", total=1)
        described, _ = describe_video(
            path,
            descriptor,
            settings,
            lambda done, total: bar.update(task, completed=done, total=total or done),
        )
    return described
