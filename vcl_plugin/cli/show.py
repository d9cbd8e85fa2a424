"""`vcl show`: two videos as one picture, what was found in them drawn on their similarity.

In: video files or descriptor arrays. Out: a PNG (or PDF, SVG).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from retrieval.arrays import cosine_map
from retrieval.errors import NotFound, Refused
from retrieval.media.video import read_frames
from retrieval.pairing import match_rows
from retrieval.plugins import load_localizer
from retrieval.settings import load_settings
from vcl_plugin.cli.localize import ARRAYS, read_input
from vcl_plugin.cli.output import print_json, stdout
from vcl_plugin.reports.attention import look_inside
from vcl_plugin.reports.visualize import Frame, Picture, figure_class, save_pair

THUMBNAILS = 9
THUMBNAIL_SIZE = (160, 120)


def show(
    query: Annotated[Path, typer.Argument(help="Video file, or .npy descriptors.")],
    reference: Annotated[Path, typer.Argument(help="Video file, or .npy descriptors.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Picture to write: .png, .pdf, .svg.")],
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="Localizer whose segments are drawn.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option("--weights", "-w", help="TransVCL weights, for its map and attention."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="JSON list of true boxes (q_start, r_start, q_end, r_end).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Draw the similarity of two videos with the segments found, and how the network sees them."""
    if out.suffix.lower() not in (".png", ".pdf", ".svg", ".jpg"):
        raise Refused(f"{out.name}: pictures are written as .png, .jpg, .pdf or .svg")
    figure_class()  # before the work: it may be missing
    settings = load_settings()
    chosen = method or ("transvcl" if weights else settings.localizer)
    is_learned = chosen in ("transvcl", "spd")
    localizer = load_localizer(chosen, weights if is_learned else None)
    arrays = match_rows(*(read_input(path, settings) for path in (query, reference)))
    found = localizer.localize(arrays[0], arrays[1])
    enhanced = attention = None
    if weights is not None or chosen == "transvcl":
        from vcl_plugin.model.checkpoint import SHIPPED_WEIGHTS, load_transvcl

        model = load_transvcl(weights or SHIPPED_WEIGHTS)
        # Unasked, a pair too long for one map gets the picture without the network's view.
        if weights is not None or max(map(len, arrays)) <= model.config.max_frames:
            enhanced, attention = look_inside(model, arrays[0], arrays[1])
    picture = Picture(
        cosine=cosine_map(arrays[0], arrays[1]),
        enhanced=enhanced,
        attention=attention,
        found=found,
        truth=_read_truth(truth) if truth else (),
        query_frames=_thumbnails(query),
        reference_frames=_thumbnails(reference),
        query_name=query.name,
        reference_name=reference.name,
        facts={"method": localizer.fingerprint},
    )
    save_pair(picture, out)
    if as_json:
        print_json({"picture": str(out), "segments": [each.as_dict() for each in found]})
    else:
        stdout.print(f"{out}: {len(found)} segments", markup=False)


def _thumbnails(path: Path) -> list[Frame]:
    """Frames from the middle of equal parts of a video; descriptors have none."""
    if path.suffix in ARRAYS:
        return []
    with read_frames(path, fps=1.0, size=THUMBNAIL_SIZE) as reader:
        # Twice as many as needed, so that every second one stands in the middle of its part.
        fps = 2 * THUMBNAILS / max(reader.info.duration or THUMBNAILS, 1.0)
    frames: list[Any] = []
    for batch in read_frames(path, fps=fps, size=THUMBNAIL_SIZE, max_frames=2 * THUMBNAILS):
        frames.extend(batch.frames)
    return [np.asarray(frame) for frame in frames[1::2]]


def _read_truth(path: Path) -> list[list[float]]:
    try:
        boxes = json.loads(path.read_text(encoding="utf-8"))
        return [[float(value) for value in (q0, r0, q1, r1)] for q0, r0, q1, r1 in boxes]
    except OSError as reason:
        raise NotFound(f"{path} cannot be read ({reason})") from None
    except (ValueError, TypeError):
        raise Refused(
            f"{path} must hold a JSON list of boxes [q_start, r_start, q_end, r_end]"
        ) from None
