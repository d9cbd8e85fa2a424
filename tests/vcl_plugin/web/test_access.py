"""Who may what: every endpoint, as every role, for everybody and for two owners.

The table is the expectation; an endpoint that it lacks fails the test. What belongs to somebody is
Northlight's, so a key for Ostrava must get the answer of what is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import text

from retrieval.database import transaction
from retrieval.work import searches
from tests.vcl_plugin import world
from tests.vcl_plugin.web.conftest import Desk
from vcl_plugin.claims import assets
from vcl_plugin.web import incoming
from vcl_plugin.web.incoming import Incoming
from vcl_plugin.web.keys import ROLES
from vcl_plugin.webhooks import deliveries, registry

Sees = Callable[[str], bool]


def everybody(name: str) -> bool:
    return True


def not_ostrava(name: str) -> bool:
    return "Ostrava" not in name


def asker(name: str) -> bool:
    return " of " not in name or name == "service of Northlight"


def nobody(name: str) -> bool:
    """A session is its sender's alone; here it is of a key that no longer asks."""
    return False


@dataclass(frozen=True)
class Row:
    """What an endpoint needs: a verb of the role, a key without owners, sight of the thing."""

    verb: str | None
    is_for_all: bool = False
    sees: Sees = everybody
    body: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None


MISSING = "99999"
PAIR = {"query": "ten", "reference": "harbour"}
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
TABLE: dict[str, Row] = {
    "GET /livez": Row(None),
    "GET /readyz": Row(None),
    "GET /metrics": Row("read", is_for_all=True),
    "GET /api/v1/status": Row("read", is_for_all=True),
    "GET /api/v1/claims": Row("read"),
    "GET /api/v1/claims/counts": Row("read"),
    "GET /api/v1/claims/{claim_id}": Row("read", sees=not_ostrava),
    "GET /api/v1/claims/{claim_id}/evidence": Row("read", sees=not_ostrava),
    "POST /api/v1/claims/decisions": Row("decide", body={"ids": [1], "verb": "confirm"}),
    "POST /api/v1/claims/assignments": Row(
        "decide", sees=not_ostrava, body={"ids": ["{claim_id}"], "assignee": "bo"}
    ),
    "POST /api/v1/claims/{claim_id}/decisions": Row(
        "decide", sees=not_ostrava, body={"verb": "confirm"}
    ),
    "POST /api/v1/claims/{claim_id}/undo": Row("decide", sees=not_ostrava),
    "POST /api/v1/claims/{claim_id}/notes": Row("decide", sees=not_ostrava, body={"note": "x"}),
    "GET /api/v1/segments": Row("read"),
    "GET /api/v1/owners": Row("read"),
    "GET /api/v1/assets": Row("read"),
    "GET /api/v1/assets/{asset_id}": Row("read", sees=not_ostrava),
    "POST /api/v1/assets": Row(
        "manage", sees=not_ostrava, body={"owner": "Northlight", "title": "new"}
    ),
    "POST /api/v1/assets/{asset_id}/shares": Row(
        "manage", sees=not_ostrava, body={"owner": "Northlight", "percent": 90}
    ),
    "GET /api/v1/references": Row("read"),
    "GET /api/v1/references/conflicts": Row("read", sees=not_ostrava, query={"video": "harbour"}),
    "GET /api/v1/references/exclusions": Row("read", sees=not_ostrava, query={"video": "harbour"}),
    "POST /api/v1/references": Row(
        "manage", sees=not_ostrava, body={"video_id": "harbour", "asset_id": "{asset_id}"}
    ),
    "POST /api/v1/references/exclusions": Row(
        "manage", sees=not_ostrava, body={"video_id": "harbour", "start": 90, "end": 95}
    ),
    "GET /api/v1/policies": Row("read"),
    "POST /api/v1/policies": Row(
        "manage", is_for_all=True, body={"name": "p", "rules": [{"action": "track"}]}
    ),
    "POST /api/v1/policies/assignments": Row(
        "manage", sees=not_ostrava, body={"policy": "default", "asset_id": "{asset_id}"}
    ),
    "POST /api/v1/policies/dry-run": Row(
        "read", sees=not_ostrava, body={"policy": "default", "owner": "Northlight"}
    ),
    "GET /api/v1/reports": Row("read"),
    "GET /api/v1/reports/{name}": Row("read"),
    "GET /api/v1/why": Row("read", sees=not_ostrava, query=PAIR),
    "POST /api/v1/comparisons": Row("read", sees=not_ostrava, body=PAIR),
    "POST /api/v1/comparisons/files": Row("read", headers=FORM, content=b"--b--"),
    "GET /api/v1/searches": Row("read"),
    "POST /api/v1/searches": Row("upload", sees=not_ostrava, body={"video_id": "ten"}),
    "GET /api/v1/searches/{search_id}": Row("read", sees=asker),
    "GET /api/v1/searches/{search_id}/events": Row("read", sees=asker),
    "POST /api/v1/searches/{search_id}/cancel": Row("upload", sees=asker),
    "GET /api/v1/uploads": Row("read"),
    "POST /api/v1/uploads": Row("upload", headers=FORM, content=b"--b--"),
    "POST /api/v1/uploads/path": Row("upload", body={"path": "/etc/passwd"}),
    "POST /api/v1/uploads/sessions": Row("upload", body={"size": 1}),
    "HEAD /api/v1/uploads/sessions/{session_id}": Row("upload", sees=nobody),
    "GET /api/v1/uploads/sessions/{session_id}": Row("upload", sees=nobody),
    "PATCH /api/v1/uploads/sessions/{session_id}": Row(
        "upload", sees=nobody, headers={"Upload-Offset": "0"}, content=b"x"
    ),
    "POST /api/v1/uploads/sessions/{session_id}/complete": Row("upload", sees=nobody),
    "DELETE /api/v1/uploads/sessions/{session_id}": Row("upload", sees=nobody),
    "GET /api/v1/media/film": Row("read", sees=not_ostrava, query={"video": "ten"}),
    "GET /api/v1/media/preview": Row("read", sees=not_ostrava, query={"video": "ten"}),
    "GET /api/v1/media/thumbnail": Row("read", sees=not_ostrava, query={"video": "ten"}),
    "GET /api/v1/media/map.png": Row("read", sees=not_ostrava, query=PAIR),
    "GET /api/v1/media/map.json": Row("read", sees=not_ostrava, query=PAIR),
    "GET /api/v1/webhooks": Row("manage"),
    "POST /api/v1/webhooks": Row(
        "manage",
        sees=not_ostrava,
        body={"url": "https://1.1.1.1/new", "owners": ["Northlight"]},
    ),
    "GET /api/v1/webhooks/{webhook_id}": Row("manage", sees=not_ostrava),
    "GET /api/v1/webhooks/{webhook_id}/deliveries": Row("manage", sees=not_ostrava),
    "POST /api/v1/webhooks/{webhook_id}/test": Row("manage", sees=not_ostrava),
    "POST /api/v1/webhooks/{webhook_id}/resend": Row("manage", sees=not_ostrava),
    "POST /api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/resend": Row(
        "manage", sees=not_ostrava
    ),
    "DELETE /api/v1/webhooks/{webhook_id}": Row("manage", sees=not_ostrava),
    "DELETE /api/v1/references": Row("manage", sees=not_ostrava, query={"video": "harbour"}),
    "DELETE /api/v1/assets/{asset_id}": Row("manage", sees=not_ostrava),
}
# What these find is of films that the tests' world does not have: their 404 says so to everybody.
LACKING = ("/api/v1/media/", "/api/v1/comparisons", "/api/v1/why", "/evidence")


def prepare(desk: Desk) -> dict[str, str]:
    """Whatever an endpoint may have taken away is there again; the values for the paths."""
    with transaction(desk.engine.database) as connection:
        asset_id = assets.add_asset(connection, "Northlight", "harbour the film")
        if assets.find_holder(connection, "harbour") is None:
            assets.add_reference(connection, "harbour", asset_id)
        search = searches.create_search(connection, "ten", asked_by="service of Northlight")
        searches.count_opened(connection, search, 0, 0)
        files = Incoming(desk.engine.settings.upload_dir)
        session = incoming.open_session(connection, files, "somebody else", 1, {})
        connection.execute(text("UPDATE webhooks SET removed_at = now()"))  # there is a limit
        hook, _ = registry.add_webhook(connection, "https://1.1.1.1/x", "test", [], ["Northlight"])
        delivery = deliveries.ask_test(connection, hook.id)
    return {
        "claim_id": str(desk.claims["ten"]),
        "asset_id": str(asset_id),
        "search_id": search,
        "session_id": session.id,
        "name": "claims_open",
        "webhook_id": str(hook.id),
        "delivery_id": str(delivery.id),
    }


def ask(desk: Desk, endpoint: str, row: Row, name: str, values: Mapping[str, str]) -> Any:
    method, path = endpoint.split(" ")
    options: dict[str, Any] = {"params": dict(row.query), "headers": {**desk.as_(name)}}
    options["headers"] |= row.headers
    if row.body is not None:
        options["json"] = fill(row.body, values)
    if row.content is not None:
        options["content"] = row.content
    return desk.client.request(method, path.format(**values), **options)


def fill(value: Any, values: Mapping[str, str]) -> Any:
    """A body with the numbers of this world in it."""
    if isinstance(value, dict):
        return {name: fill(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [fill(each, values) for each in value]
    return int(values[value[1:-1]]) if isinstance(value, str) and value[:1] == "{" else value


def expected(row: Row, name: str) -> int | None:
    """401, 403, 404; None: it is let in."""
    role = name.split(" of ")[0]
    if row.verb is not None and row.verb not in ROLES[role]:
        return 403
    if row.is_for_all and " of " in name:
        return 403
    return None if row.sees(name) else 404


def test_every_endpoint_lets_in_whom_the_table_says(desk: Desk) -> None:
    document = desk.client.get("/api/v1/openapi.json").json()
    described = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert described == set(TABLE)
    wrong = []
    values = prepare(desk)
    for endpoint, row in TABLE.items():
        for name in desk.keys:
            answer, wanted = ask(desk, endpoint, row, name, values), expected(row, name)
            if answer.is_success and not endpoint.startswith(("GET", "HEAD")):
                values = prepare(desk)
            lacks = wanted is None and any(each in endpoint for each in LACKING)
            is_right = (
                answer.status_code == wanted
                if wanted is not None
                else answer.status_code not in (401, 403, *(() if lacks else (404,)))
                and answer.status_code != 500
            )
            if not is_right:
                wrong.append(
                    f"{endpoint} as {name}: {answer.status_code}, not {wanted or 'let in'}"
                )
    assert wrong == []


def test_without_a_key_nothing_but_health_answers(desk: Desk) -> None:
    values = prepare(desk)
    for endpoint, row in TABLE.items():
        method, path = endpoint.split(" ")
        answer = desk.client.request(method, path.format(**values), params=dict(row.query))
        assert (answer.status_code == 401) == (row.verb is not None), endpoint


def test_what_is_of_others_answers_as_what_is_not_there(desk: Desk) -> None:
    values = prepare(desk)
    for endpoint, row in TABLE.items():
        if row.sees is everybody:
            continue
        name = next(f"{each} of Ostrava" for each in ROLES if row.verb in ROLES[each])
        theirs = ask(desk, endpoint, row, name, values)
        words = ("ten", "harbour", "Northlight", *values.values())
        gone = dict.fromkeys(words, MISSING)
        nothing = replace(
            row, body=replace_words(row.body, gone), query=replace_words(dict(row.query), gone)
        )
        none = ask(desk, endpoint, nothing, name, dict.fromkeys(values, MISSING))
        assert theirs.status_code == none.status_code == 404, endpoint
        names = "|".join(map(re.escape, sorted(gone, key=len, reverse=True)))
        assert re.sub(rf"\b({names})\b", MISSING, theirs.text) == none.text, endpoint


def replace_words(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: replace_words(each, words) for name, each in value.items()}
    if isinstance(value, list):
        return [replace_words(each, words) for each in value]
    return words.get(value, value) if isinstance(value, str) else value


def test_a_key_with_owners_reads_no_row_of_others(desk: Desk) -> None:
    me = desk.as_("reader of Northlight")
    for path, whose in (
        ("assets", "owner"),
        ("owners", "name"),
        ("references", "owner"),
        ("segments", "owner"),
        ("claims", "owner"),
    ):
        rows = desk.client.get(f"/api/v1/{path}", headers=me).json()[path]
        assert {row[whose] for row in rows} == {"Northlight"}, path
    uploads = desk.client.get("/api/v1/uploads", headers=me).json()["uploads"]
    assert {row["query_id"] for row in uploads} == {"ten", "twenty"}
    rows = desk.client.get("/api/v1/reports/infringing_segments", headers=me).json()
    assert {row["owner"] for row in rows} <= {"Northlight"}
    closed = desk.client.get("/api/v1/reports/uploads_by_infringing_share", headers=me)
    assert (closed.status_code, closed.json()["code"]) == (403, "forbidden")


def test_a_refusal_names_no_asset_of_others(desk: Desk) -> None:
    """The same film for two owners: the second learns that it is held, not by which asset."""
    with transaction(desk.engine.database) as connection:
        world.add_upload(connection, "shared", "bo")
        mine = assets.add_asset(connection, "Northlight", "mine")
        theirs = assets.add_asset(connection, "Ostrava", "theirs")
        assets.add_reference(connection, "shared", theirs)
        searches.create_search(connection, "shared", asked_by="manager of Northlight")
    answer = desk.client.post(
        "/api/v1/references",
        headers=desk.as_("manager of Northlight"),
        json={"video_id": "shared", "asset_id": mine},
    )
    assert answer.status_code == 422
    assert "somebody else" in answer.json()["detail"]
    assert f"asset {theirs}" not in answer.text
