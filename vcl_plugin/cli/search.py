"""`vcl search` through the workers, and `vcl localize` of two files without any service.

In: video files. Out: copied segments on stdout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from retrieval.database import transaction
from retrieval.describe.descriptors import load_descriptor
from retrieval.engine import RetrievalEngine, describe_video
from retrieval.errors import BadVideo, RetrievalError
from retrieval.pairing import localize_views
from retrieval.plugins import load_localizer
from retrieval.settings import Settings, load_settings
from retrieval.store import StoredDescriptors, read_descriptors
from retrieval.tasks import enqueue_search, send
from retrieval.work.searches import read_quarantined, read_search, wait_for_search
from vcl_plugin.claims.claims import list_claims
from vcl_plugin.claims.segments import read_segments
from vcl_plugin.cli.output import print_json, print_rows, progress, stderr, stdout
from vcl_plugin.cli.services import AsJson
from vcl_plugin.cli.session import WorkerHint, open_engine

ARRAYS = (".npy", ".safetensors")


def search(
    video: Annotated[Path, typer.Argument(help="The video to search for copies in.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait, and print what was found.")] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Give up waiting after so many seconds.")
    ] = None,
    uploader: Annotated[
        str | None, typer.Option(help="Who uploaded it; allow-lists may name them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search a video against all references; workers do it (see `vcl worker`)."""
    engine = open_engine()
    try:
        search_id = enqueue_search(video, uploader=uploader)
    except BadVideo as error:
        if as_json:  # what a program reads has one shape, whenever the file was found out
            print_json({"search_id": None, "status": "failed", **_reason(error)})
        raise
    if not wait:
        with transaction(engine.database) as connection:
            found = read_search(connection, search_id)
        print_json(found) if as_json else stdout.print(search_id)
        return
    state = _wait(engine, search_id, timeout)
    with transaction(engine.database) as connection:
        segments = read_segments(connection, search_id)
        claims = list_claims(connection, query_id=state["query_id"])
        aside = read_quarantined(connection, search_id)
    if as_json:
        print_json({**state, "segments": segments, "claims": claims, "quarantined": aside})
    elif state["status"] == "done":
        _print_search(state, segments)
    for pair in aside:
        stderr.print(
            f"vcl: {pair['reference']!r} was not compared: {pair['message']} ({pair['reason']})",
            markup=False,
        )
    if state["status"] == "failed":
        raise RetrievalError(state["message"], code=state["reason"])


def _wait(engine: RetrievalEngine, search_id: str, timeout: float | None) -> dict[str, Any]:
    hint = WorkerHint()
    with progress() as bar:
        task = bar.add_task("searching", total=1)

        def show(state: dict[str, Any]) -> None:
            total = state["pairs_total"] or 1
            bar.update(
                task,
                description=f"{state['query']}: {state['status']}",
                total=total,
                completed=total - state["pairs_left"] if state["pairs_total"] else 0,
            )
            hint.watch(state["status"] != "waiting")

        patience = engine.settings.service_timeout
        return wait_for_search(engine.database, search_id, timeout, show, outage=patience)


def _reason(error: RetrievalError) -> dict[str, str]:
    return {"reason": error.code, "message": str(error)}


def rescan(
    reference: Annotated[str, typer.Argument(help="The reference's id, see `vcl reference list`.")],
    as_json: AsJson = False,
) -> None:
    """Look for a reference in all uploads of the past; nothing is decoded again."""
    engine = open_engine()
    messages = engine.rescan(reference)
    send(messages)
    uploads = [message.arguments["query_id"] for message in messages]
    if as_json:
        print_json({"reference_id": reference, "uploads": uploads})
    elif uploads:
        stdout.print(f"{len(uploads)} uploads are compared with {reference}", markup=False)
    else:
        stderr.print(f"no upload that was not yet compared comes near {reference}", markup=False)


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


def _print_search(state: dict[str, Any], segments: list[dict[str, Any]]) -> None:
    if state["status"] == "done" and state["message"]:
        stderr.print(f"note: {state['message']}", markup=False)
    shown = (
        "owner",
        "asset",
        "reference",
        "query_start",
        "query_end",
        "reference_start",
        "reference_end",
        "score",
        "is_reversed",
        "speed",
        "claim_id",
    )
    print_rows(
        [{name: row[name] for name in shown} for row in segments],
        False,
        empty=f"no copied segment was found in {state['pairs_total']} candidates",
        title=f"{state['query']}: {state['pairs_total']} candidates compared",
    )
