"""`vcl searches`: those that were asked for, how far they are, and an end to those nobody needs.

In: ids of searches, or videos. Out: states, segments, claims.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from sqlalchemy import Connection

from retrieval.database import transaction
from retrieval.errors import NotFound, RetrievalError
from retrieval.records import Search, SearchStatus
from retrieval.work.cancellation import cancel_search
from retrieval.work.catalogue import find_video
from retrieval.work.pairs import read_quarantined
from retrieval.work.searches import list_searches, read_searches
from vcl_plugin.claims.claims import list_claims
from vcl_plugin.claims.segments import read_segments
from vcl_plugin.cli.output import AsJson, print_json, print_outcome, print_rows, stderr, stdout
from vcl_plugin.cli.session import Site, current_user, open_site
from vcl_plugin.cli.waiting import wait_for_searches

app = typer.Typer(help="Searches that were asked for.", no_args_is_help=True)

LISTED = ("search_id", "query", "status", "reason", "pairs_total", "pairs_left", "created_at")
SEGMENT = (
    *("owner", "asset", "reference", "query_start", "query_end", "reference_start"),
    *("reference_end", "score", "is_reversed", "speed", "claim_id"),
)
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="SEARCH...",
        help="Ids of searches; or a video by id, title or path: its newest search.",
    ),
]


@app.command("list")
def list_(
    status: Annotated[
        list[str] | None,
        typer.Option("--status", "-s", help=f"Only of {', '.join(SearchStatus)}; repeat it."),
    ] = None,
    video: Annotated[
        str | None, typer.Option("--video", help="Only of this video: id, title or path.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
    after: Annotated[str | None, typer.Option("--after", help="Where the last page ended.")] = None,
    as_json: AsJson = False,
) -> None:
    """Searches, the newest first."""
    with transaction(open_site().database) as connection:
        query_id = None if video is None else find_video(connection, video).id
        page = list_searches(connection, status or (), query_id, limit=limit, after=after)
    rows = [each.as_dict() for each in page.rows]
    if not as_json:
        rows = [{name: row[name] for name in LISTED} for row in rows]
    print_rows(rows, as_json, empty="no searches")
    if page.next is not None:
        stderr.print(f"there are more: --after {page.next}", markup=False)


@app.command()
def show(
    search: Annotated[str, typer.Argument(help="Its id; or a video by id, title or path.")],
    as_json: AsJson = False,
) -> None:
    """One search: how far it is, what it found, and what could not be compared."""
    with transaction(open_site().database) as connection:
        state = find_search(connection, search)
        found = read_findings(connection, state)
    print_json(found) if as_json else print_findings(state, found)


@app.command()
def wait(
    searches: Names,
    timeout: Annotated[
        float | None, typer.Option(help="Give up waiting after so many seconds.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until searches are at their end; fails if one of them is not `done`."""
    site = open_site()
    states = wait_for_searches(site, _find_ids(site, searches), timeout)
    rows = [each.as_dict() for each in states]
    if not as_json:
        rows = [{name: row[name] for name in LISTED} for row in rows]
    print_rows(rows, as_json, empty="")
    if any(each.status != SearchStatus.DONE for each in states):
        raise typer.Exit(1)


@app.command()
def cancel(searches: Names, as_json: AsJson = False) -> None:
    """End searches that are under way; what they found stays, and nothing more is compared."""
    site = open_site()
    ended: list[Search] = []
    refused: list[RetrievalError] = []
    for search_id in _find_ids(site, searches):
        try:
            with transaction(site.database) as connection:
                ended.append(cancel_search(connection, search_id, current_user()))
        except RetrievalError as error:
            refused.append(error)
    said = "; ".join(
        f"search {each.search_id} is cancelled, {each.pairs_left} of {each.pairs_total} candidates "
        "were not compared"
        for each in ended
    )
    if ended or as_json:
        print_outcome(said, {"cancelled": [each.as_dict() for each in ended]}, as_json)
    if len(searches) == 1 and refused:
        raise refused[0]
    for each in refused:
        stderr.print(f"vcl: {each} ({each.code})", markup=False)
    if refused:
        raise typer.Exit(1)


def find_search(connection: Connection, name: str) -> Search:
    """The search of that id, else the newest of the video that a person names."""
    known = read_searches(connection, [name])
    if known:
        return known[0]
    try:
        video = find_video(connection, name)
    except NotFound:
        raise NotFound(
            f"no search has the id {name!r}, and no video that id, title or path; "
            "`vcl searches list` shows searches"
        ) from None
    newest = list_searches(connection, query_id=video.id, limit=1).rows
    if not newest:
        raise NotFound(f"{video.title!r} was never searched; run `vcl search`")
    return newest[0]


def read_findings(connection: Connection, state: Search) -> dict[str, Any]:
    """A search with its segments, the claims on its upload, and the pairs that were set aside."""
    return {
        **state.as_dict(),
        "segments": read_segments(connection, state.search_id),
        "claims": list_claims(connection, query_id=state.query_id),
        "quarantined": [asdict(each) for each in read_quarantined(connection, state.search_id)],
    }


def print_findings(state: Search, found: dict[str, Any]) -> None:
    """What a search found, as tables; what it could not compare, on stderr."""
    if not state.status.is_final:
        stdout.print(
            f"{state.query}: {state.status}, {state.pairs_left} of {state.pairs_total} candidates "
            "left",
            markup=False,
        )
    if state.message:
        stderr.print(f"note: {state.message}", markup=False)
    left_out = state.pairs_left if state.status == SearchStatus.CANCELLED else 0
    compared = state.pairs_total - state.pairs_quarantined - left_out
    if state.status != SearchStatus.FAILED:
        print_rows(
            [{name: row[name] for name in SEGMENT} for row in found["segments"]],
            False,
            empty=f"no copied segment was found in {compared} candidates",
            title=f"{state.query}: {compared} candidates compared",
        )
    for pair in found["quarantined"]:
        stderr.print(
            f"vcl: {pair['reference']!r} was not compared: {pair['message']} ({pair['reason']})",
            markup=False,
        )


def raise_unless_done(state: Search) -> None:
    """The error of a search that did not end well."""
    if state.status == SearchStatus.FAILED:
        raise RetrievalError(str(state.message), code=state.reason)
    if state.status == SearchStatus.CANCELLED:
        left = f"{state.pairs_left} of {state.pairs_total} candidates were not compared"
        raise RetrievalError(f"the search was {state.message}; {left}", code="cancelled")
    if state.status == SearchStatus.INCOMPLETE:
        raise RetrievalError(_say_incomplete(state), code="incomplete")


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


def _find_ids(site: Site, names: list[str]) -> list[str]:
    with transaction(site.database) as connection:
        found = [find_search(connection, name).search_id for name in names]
    return list(dict.fromkeys(found))
