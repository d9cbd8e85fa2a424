"""`vcl search`, `vcl retry`, `vcl rescan`: workers look for copies, in one upload or in the past.

In: a video file, or a reference. Out: copied segments on stdout.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import BadVideo, Refused, RetrievalError
from retrieval.records import Search, SearchStatus
from retrieval.tasks import enqueue_search, send
from retrieval.work.catalogue import find_video
from retrieval.work.pairs import read_quarantined, retry_pairs
from retrieval.work.searches import plan_again, read_search, wait_for_search
from vcl_plugin.claims.claims import list_claims
from vcl_plugin.claims.segments import read_segments
from vcl_plugin.cli.output import AsJson, print_json, print_rows, progress, stderr, stdout
from vcl_plugin.cli.session import WorkerHint, open_engine, require_film


def search(
    video: Annotated[Path, typer.Argument(help="The video to search for copies in.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait, and print what was found.")] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Give up waiting after so many seconds.")
    ] = None,
    uploader: Annotated[
        str | None, typer.Option(help="Who uploaded it; allow-lists may name them.")
    ] = None,
    external_id: Annotated[
        str | None, typer.Option(help="The platform's own id of the upload.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Where it was uploaded to.")] = None,
    uploaded_at: Annotated[
        str | None, typer.Option(help="When, such as 2026-03-01T12:00Z; UTC if it says no zone.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search a video against all references; workers do it (see `vcl worker`)."""
    require_film(video)
    engine = open_engine()
    try:
        search_id = enqueue_search(video, None, uploader, external_id, url, uploaded_at)
    except BadVideo as error:
        if as_json:  # what a program reads has one shape, whenever the file was found out
            print_json({"search_id": None, "status": SearchStatus.FAILED, **_reason(error)})
        raise
    if not wait:
        with transaction(engine.database) as connection:
            found = read_search(connection, search_id)
        print_json(found.as_dict()) if as_json else stdout.print(search_id)
        return
    state = _wait(engine, search_id, timeout)
    with transaction(engine.database) as connection:
        segments = read_segments(connection, search_id)
        claims = list_claims(connection, query_id=state.query_id)
        aside = read_quarantined(connection, search_id)
    if as_json:
        left_out = [asdict(pair) for pair in aside]
        print_json(
            {**state.as_dict(), "segments": segments, "claims": claims, "quarantined": left_out}
        )
    elif state.status != SearchStatus.FAILED:
        _print_search(state, segments)
    for pair in aside:
        stderr.print(
            f"vcl: {pair.reference!r} was not compared: {pair.message} ({pair.reason})",
            markup=False,
        )
    if state.status == SearchStatus.FAILED:
        raise RetrievalError(str(state.message), code=state.reason)
    if state.status == SearchStatus.CANCELLED:
        left = f"{state.pairs_left} of {state.pairs_total} candidates were not compared"
        raise RetrievalError(f"the search was {state.message}; {left}", code="cancelled")
    if state.status == SearchStatus.INCOMPLETE:
        raise RetrievalError(_say_incomplete(state), code="incomplete")


def _wait(engine: RetrievalEngine, search_id: str, timeout: float | None) -> Search:
    hint = WorkerHint()
    with progress() as bar:
        task = bar.add_task("searching", total=1)

        def show(state: Search) -> None:
            total = state.pairs_total or 1
            bar.update(
                task,
                description=f"{state.query}: {state.status}",
                total=total,
                completed=total - state.pairs_left if state.pairs_total else 0,
            )
            hint.watch(state.status != SearchStatus.WAITING)

        patience = engine.settings.service_timeout
        return wait_for_search(engine.database, search_id, timeout, show, outage=patience)


def _say_incomplete(state: Search) -> str:
    left_out = (
        f"{state.pairs_quarantined} of {state.pairs_total} candidates were not compared"
        if state.pairs_quarantined
        else str(state.message).partition(",")[0]
    )
    return (
        f"{left_out}, so {state.query!r} may hold copies that were not found; mend what the "
        f"reasons name, then `vcl retry --search {state.search_id}`"
    )


def retry(
    reason: Annotated[
        str | None, typer.Option(help="Only pairs with that reason code (docs/reference).")
    ] = None,
    search_id: Annotated[
        str | None, typer.Option("--search", help="Only what that search could not compare.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare again what was given up; searches that ended incomplete are opened again."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        if search_id is not None:
            read_search(connection, search_id)  # one that does not exist is an error
        pairs = retry_pairs(connection, reason, search_id)
        is_meant = reason in (None, "references_unreadable")
        planned = plan_again(connection, search_id) if is_meant else []
    facts = {"pairs": pairs, "searches_planned_again": len(planned)}
    if as_json:
        print_json(facts)
    elif pairs or planned:
        stdout.print(
            f"{pairs} pairs are compared again, {len(planned)} searches are planned again; "
            "workers take them at their next sweep"
        )
    else:
        stderr.print("nothing was given up that fits")


def _reason(error: RetrievalError) -> dict[str, str]:
    return {"reason": error.code, "message": str(error)}


def rescan(
    reference: Annotated[str, typer.Argument(help="The reference's id, title or path.")],
    as_json: AsJson = False,
) -> None:
    """Look for a reference in all uploads of the past; nothing is decoded again."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        found = find_video(connection, reference)
    if not found.is_reference:
        raise Refused(
            f"{reference!r} is an upload; name a reference (`vcl reference list`), or search the "
            "upload with `vcl search FILE`"
        )
    messages = engine.rescan(found.id)
    send(messages)
    uploads = [message.arguments["query_id"] for message in messages]
    if as_json:
        print_json({"reference_id": found.id, "uploads": uploads})
    elif uploads:
        stdout.print(f"{len(uploads)} uploads are compared with {reference}", markup=False)
    else:
        stderr.print(f"no upload that was not yet compared comes near {reference}", markup=False)


def _print_search(state: Search, segments: list[dict[str, Any]]) -> None:
    if state.message:
        stderr.print(f"note: {state.message}", markup=False)
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
    compared = state.pairs_total - state.pairs_quarantined
    print_rows(
        [{name: row[name] for name in shown} for row in segments],
        False,
        empty=f"no copied segment was found in {compared} candidates",
        title=f"{state.query}: {compared} candidates compared",
    )
