"""The queue's page: claims by filter, counted by status, with decisions about those selected.

In: a filter in the address. Out: a page of claims; decisions about rows that were ticked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import Connection, text
from starlette.concurrency import run_in_threadpool

from retrieval.database import transaction
from retrieval.errors import Refused
from vcl_plugin.claims import decisions, queue
from vcl_plugin.claims.claims import REASONS, TRANSITIONS
from vcl_plugin.claims.decisions import Decision, Outcome
from vcl_plugin.claims.policies import ACTIONS
from vcl_plugin.claims.queue import SORTS, ClaimFilter
from vcl_plugin.web.desk.pages import Here, PageRoute, Reader, Reviewer, local_path, render
from vcl_plugin.web.keys import Viewer

router = APIRouter(route_class=PageRoute)

ROWS = 50
MOST_SELECTED = 200  # one transaction, so that one undo takes all of them back
ALL = "all"
NO_MATCH = ("release", "misidentified")  # what one key does
FIRST_STATUS = "potential"
NUMBERS = ("min_age", "max_age", "min_seconds", "max_seconds", "min_score", "max_score")
WORDS = ("owner", "asset", "action", "text", "upload", "assignee")
SORT_NAMES = {
    "stake": "most at stake",
    "newest": "newest",
    "oldest": "oldest",
    "seconds": "longest copy",
    "score": "surest",
}


@dataclass(frozen=True)
class Wanted:
    """What an address asks of the queue."""

    status: str
    sort: str
    after: str | None
    filter: ClaimFilter
    values: Mapping[str, str]  # the address's own words, for forms and links

    def without_page(self) -> dict[str, str]:
        return {name: value for name, value in self.values.items() if name != "after"}


def read_wanted(parameters: Mapping[str, str]) -> Wanted:
    """The filter of an address; a field left empty does not narrow."""
    known = ("status", "sort", "after", *NUMBERS, *WORDS)
    values = {name: parameters[name].strip() for name in known if parameters.get(name, "").strip()}
    status = values.get("status", FIRST_STATUS)
    sort = values.get("sort", "stake")
    if sort not in SORTS:
        raise Refused(f"{sort!r} is no order; use one of {', '.join(SORTS)}", code="bad_filter")
    wanted = ClaimFilter(
        status=() if status == ALL else (status,),
        **{name: values[name] for name in WORDS if name in values},  # type: ignore[arg-type]
        **{name: _number(name, values[name]) for name in NUMBERS if name in values},  # type: ignore[arg-type]
    )
    return Wanted(status, sort, values.get("after"), wanted, values)


@router.get("/claims")
def show_queue(request: Request, viewer: Reader, site: Here) -> Response:
    """Claims, what is most at stake first."""
    failure = None
    try:
        wanted = read_wanted(request.query_params)
    except Refused as error:
        wanted, failure = read_wanted({}), str(error)
    with transaction(site.database) as connection:
        page = queue.list_queue(
            connection, wanted.filter, viewer.owners, wanted.sort, ROWS, wanted.after
        )
        counts = queue.count_queue(connection, wanted.filter, viewer.owners)
        spans = queue.read_spans(connection, [each["id"] for each in page.claims])
        owners = list_owners(connection, viewer)
    return render(
        request,
        viewer,
        "queue.html",
        status=422 if failure else 200,
        **{"wanted": wanted, "claims": page.claims, "next": page.next, "counts": counts},
        **{"spans": spans, "owners": owners, "failure": failure, "total": sum(counts.values())},
        **{"statuses": TRANSITIONS, "actions": ACTIONS, "sorts": SORT_NAMES, "reasons": REASONS},
        most=max((each["stake"] for each in page.claims), default=0.0),
        refused=_read_refused(request),
    )


@router.post("/claims/decisions")
async def decide_selected(request: Request, viewer: Reviewer, site: Here) -> Response:
    """Decide the claims that were ticked; what may not be decided so is told on the queue."""
    form = await request.form()
    ids = [int(each) for each in map(str, form.getlist("id")) if re.fullmatch(r"[0-9]{1,18}", each)]
    back = local_path(str(form.get("back", "")))
    verb, reason, note = (str(form.get(name, "")) for name in ("verb", "reason", "note"))
    if not ids or len(ids) > MOST_SELECTED:
        raise Refused(
            f"{len(ids)} claims are selected; select between 1 and {MOST_SELECTED}",
            code="bad_arguments",
        )
    decision = make_decision(verb, viewer.name, reason, note)
    outcomes = await run_in_threadpool(
        decisions.decide_many, site.database, ids, decision, viewer.owners
    )
    return RedirectResponse(_tell_refused(back, outcomes), 303)


@router.post("/claims/undo")
def undo_last(
    viewer: Reviewer, site: Here, back: Annotated[str, Form(max_length=4000)] = "/claims"
) -> Response:
    """Take the viewer's last decision back; a single claim is shown again."""
    with transaction(site.database) as connection:
        outcomes = decisions.undo_last(connection, viewer.name, viewer.owners)
    is_queue = local_path(back).partition("?")[0] == "/claims"
    if len(outcomes) == 1 and not is_queue:
        _, _, query = local_path(back).partition("?")
        return RedirectResponse(f"/claims/{outcomes[0].claim_id}?{query}", 303)
    return RedirectResponse(local_path(back), 303)


def make_decision(
    verb: str, actor: str, reason: str = "", note: str = "", expected: str = ""
) -> Decision:
    """A decision from a form. `no_match` is what releases as misidentified in one step."""
    if verb == "no_match":
        verb, reason = NO_MATCH
    elif verb not in ("release", "exclude"):
        reason = ""  # the field of reasons is on every form
    return Decision(verb, actor, reason or None, note.strip()[:4000] or None, expected or None)


def list_owners(connection: Connection, viewer: Viewer) -> list[str]:
    """The owners whose claims the viewer may see."""
    if viewer.owners is not None:
        return sorted(viewer.owners)
    return list(connection.execute(text("SELECT name FROM owners ORDER BY name")).scalars())


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise Refused(f"{name.replace('_', ' ')} is {value!r}; give a number", code="bad_filter")
    # Scores are shown in per cent.
    return number / 100 if name.endswith("score") and number > 1 else number


def _tell_refused(back: str, outcomes: list[Outcome]) -> str:
    """The address to go back to, with what was not decided."""
    refused = [each for each in outcomes if not each.is_changed]
    if not refused:
        return back
    path, _, query = back.partition("?")
    told = f"refused={len(refused)}&first={refused[0].claim_id}"
    return f"{path}?{query}&{told}" if query else f"{path}?{told}"


def _read_refused(request: Request) -> dict[str, Any] | None:
    count, first = (request.query_params.get(name, "") for name in ("refused", "first"))
    if not (count.isdigit() and first.isdigit()):
        return None
    return {"count": int(count[:9]), "first": int(first[:18])}
