"""`vcl search`, `vcl retry`, `vcl rescan`: workers look for copies, in uploads or in the past.

In: video files, or a reference. Out: copied segments on stdout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from retrieval.database import transaction
from retrieval.errors import BadVideo, Refused, RetrievalError
from retrieval.records import Search, SearchStatus
from retrieval.tasks import enqueue_search, send
from retrieval.work.catalogue import find_video
from retrieval.work.messages import Priority
from retrieval.work.pairs import retry_pairs
from retrieval.work.searches import plan_again, read_search, read_searches
from vcl_plugin.cli.films import list_films
from vcl_plugin.cli.output import AsJson, print_json, print_rows, progress, stderr, stdout
from vcl_plugin.cli.searches import LISTED, print_findings, raise_unless_done, read_findings
from vcl_plugin.cli.session import Site, open_engine, open_site, require_film
from vcl_plugin.cli.waiting import wait_for_searches


def search(
    videos: Annotated[
        list[str],
        typer.Argument(
            metavar="VIDEO...",
            help="Video files, folders of them, patterns such as '*.mp4', text files with a path a "
            "line, or - for such lines on stdin.",
        ),
    ],
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
    """Search videos against all references; workers do it (see `vcl worker`)."""
    films = list_films(videos)
    enqueue = partial(enqueue_search, uploader=uploader, uploaded_at=uploaded_at)
    if [str(each) for each in films] == videos and len(films) == 1:
        _search_one(
            films[0], partial(enqueue, external_id=external_id, url=url), wait, timeout, as_json
        )
        return
    if external_id is not None or url is not None:
        raise Refused("--external-id and --url are of one upload; search their videos one by one")
    _search_many(films, partial(enqueue, priority=Priority.BULK), wait, timeout, as_json)


def _search_one(
    film: Path, enqueue: partial[str], wait: bool, timeout: float | None, as_json: bool
) -> None:
    require_film(film)
    site = open_site()
    try:
        search_id = enqueue(film)
    except BadVideo as error:
        if as_json:  # what a program reads has one shape, whenever the file was found out
            print_json({"search_id": None, "status": SearchStatus.FAILED, **_reason(error)})
        raise
    if not wait:
        with transaction(site.database) as connection:
            found = read_search(connection, search_id)
        print_json(found.as_dict()) if as_json else stdout.print(search_id)
        return
    [state] = wait_for_searches(site, [search_id], timeout)
    with transaction(site.database) as connection:
        findings = read_findings(connection, state)
    if as_json:
        print_json(findings)
        _say_set_aside(findings)
    else:
        print_findings(state, findings)
    raise_unless_done(state)


def _search_many(
    films: Sequence[Path], enqueue: partial[str], wait: bool, timeout: float | None, as_json: bool
) -> None:
    """One bar for reading the files and one for the searches; what is no video is left out."""
    site = open_site()
    failures: list[dict[str, Any]] = []
    ids: list[str] = []
    with progress() as bar:
        for film in bar.track(films, description="reading files"):
            try:
                ids.append(enqueue(require_film(film)))
            except (BadVideo, Refused) as error:
                failures.append({"file": str(film), **_reason(error)})
    states = wait_for_searches(site, ids, timeout) if wait and ids else _read_states(site, ids)
    with transaction(site.database) as connection:
        findings = [read_findings(connection, each) for each in states] if wait else []
    if as_json:
        rows = findings if wait else [each.as_dict() for each in states]
        print_json({"searches": rows, "failures": failures})
    else:
        _print_many(states, findings)
        print_rows(failures, False, empty="", title="failures")
    if failures or (wait and any(each.status != SearchStatus.DONE for each in states)):
        raise typer.Exit(1)


def _read_states(site: Site, ids: Sequence[str]) -> list[Search]:
    with transaction(site.database) as connection:
        known = {each.search_id: each for each in read_searches(connection, ids)}
    return [known[each] for each in ids]


def _print_many(states: Sequence[Search], findings: Sequence[dict[str, Any]]) -> None:
    """A line a search; where they were waited for, with what was found."""
    rows = []
    for number, state in enumerate(states):
        row = {name: state.as_dict()[name] for name in LISTED[:4]}
        if findings:
            found = findings[number]["segments"]
            row["segments"] = len(found)
            row["seconds"] = sum(each["query_end"] - each["query_start"] for each in found)
            row["assets"] = ", ".join(sorted({str(each["asset"]) for each in found}))
        rows.append(row)
    print_rows(rows, False, empty="")
    if rows and not findings:
        stderr.print("next: vcl searches list, vcl searches show VIDEO", markup=False)


def _say_set_aside(findings: dict[str, Any]) -> None:
    for pair in findings["quarantined"]:
        stderr.print(
            f"vcl: {pair['reference']!r} was not compared: {pair['message']} ({pair['reason']})",
            markup=False,
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
    with transaction(open_site().database) as connection:
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
