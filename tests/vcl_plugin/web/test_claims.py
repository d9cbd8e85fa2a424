"""Claims over HTTP: who sees which, decisions, what a moved claim answers."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from retrieval.database import transaction
from tests.vcl_plugin.web.conftest import Desk
from vcl_plugin.web.keys import revoke_key

CLAIMS = "/api/v1/claims"


def test_claims_are_listed_with_a_key_and_paged_by_cursor(desk: Desk) -> None:
    seen, after = [], {}
    while True:
        answer = desk.client.get(CLAIMS, params={"limit": 1, **after}, headers=desk.as_("reader"))
        assert answer.status_code == 200
        page = answer.json()
        seen += [claim["query"] for claim in page["claims"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == ["forty", "twenty", "ten"]


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer ", "Basic eDp5", "Bearer é"])
def test_a_wrong_key_is_a_problem_and_no_more(desk: Desk, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.encode()}
    answer = desk.client.get(CLAIMS, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "no_access"


def test_a_revoked_key_opens_nothing(desk: Desk) -> None:
    with transaction(desk.engine.database) as connection:
        revoke_key(connection, "reader")
    assert desk.client.get(CLAIMS, headers=desk.as_("reader")).status_code == 401


def test_a_claim_of_others_answers_as_one_that_is_not_there(desk: Desk) -> None:
    me, number = desk.as_("reviewer of Northlight"), desk.claims["forty"]
    for method, path, body in (
        ("GET", "", None),
        ("POST", "/decisions", {"verb": "confirm"}),
        ("POST", "/undo", None),
        ("POST", "/notes", {"note": "x"}),
    ):
        theirs = desk.client.request(method, f"{CLAIMS}/{number}{path}", headers=me, json=body)
        none = desk.client.request(method, f"{CLAIMS}/999999{path}", headers=me, json=body)
        assert theirs.status_code == none.status_code == 404
        assert theirs.text.replace(str(number), "N") == none.text.replace("999999", "N")
    listed = desk.client.get(CLAIMS, headers=me).json()["claims"]
    assert {claim["owner"] for claim in listed} == {"Northlight"}
    assert desk.client.get(f"{CLAIMS}/counts", headers=me).json()["potential"] == 2


def test_the_actor_of_a_decision_is_the_key(desk: Desk) -> None:
    me, number = desk.as_("reviewer of Northlight"), desk.claims["ten"]
    body = {"verb": "release", "reason": "fair_use", "expected": "potential"}
    assert desk.client.post(f"{CLAIMS}/{number}/decisions", headers=me, json=body).is_success
    event = desk.client.get(f"{CLAIMS}/{number}", headers=me).json()["events"][-1]
    assert (event["actor"], event["reason"]) == ("reviewer of Northlight", "fair_use")
    undone = desk.client.post(f"{CLAIMS}/{number}/undo", headers=me).json()
    assert undone["status"] == "potential"


def test_a_decision_on_a_moved_claim_is_a_conflict_with_its_state(desk: Desk) -> None:
    me, path = desk.as_("reviewer"), f"{CLAIMS}/{desk.claims['ten']}/decisions"
    assert desk.client.post(path, headers=me, json={"verb": "confirm"}).status_code == 200
    again = desk.client.post(path, headers=me, json={"verb": "confirm", "expected": "potential"})
    assert again.status_code == 409
    assert again.json()["state"]["status"] == "active"


def test_many_are_decided_by_filter_after_a_trial(desk: Desk) -> None:
    me = desk.as_("reviewer")
    body = {"verb": "confirm", "filter": {"owner": "Northlight"}, "dry_run": True}
    tried = desk.client.post(f"{CLAIMS}/decisions", headers=me, json=body).json()
    assert (tried["changed"], tried["dry_run"]) == (2, True)
    assert desk.client.get(f"{CLAIMS}/counts", headers=me).json()["potential"] == 3
    made = desk.client.post(f"{CLAIMS}/decisions", headers=me, json={**body, "dry_run": False})
    assert made.json()["changed"] == 2
    assert desk.client.get(f"{CLAIMS}/counts", headers=me).json()["active"] == 2


def test_a_post_that_is_sent_again_with_its_key_is_done_once(desk: Desk) -> None:
    me = {**desk.as_("reviewer"), "Idempotency-Key": "one"}
    path = f"{CLAIMS}/{desk.claims['ten']}/notes"
    first = desk.client.post(path, headers=me, json={"note": "ask the label"})
    again = desk.client.post(path, headers=me, json={"note": "ask the label"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json()
    assert len(again.json()["notes"]) == 1
    other = desk.client.post(path, headers=me, json={"note": "something else"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


def test_what_the_caller_has_is_not_sent_again(desk: Desk) -> None:
    me, path = desk.as_("reader"), f"{CLAIMS}/{desk.claims['ten']}"
    tag = desk.client.get(path, headers=me).headers["etag"]
    again = desk.client.get(path, headers={**me, "If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_every_access_is_written_down(desk: Desk) -> None:
    desk.client.get(CLAIMS, headers=desk.as_("reader"))
    desk.client.get(CLAIMS)
    desk.client.__exit__(None, None, None)  # the rest is written when the server ends
    with transaction(desk.engine.database) as connection:
        rows = connection.execute(text("SELECT viewer, status FROM accesses ORDER BY id")).all()
    assert [tuple(row) for row in rows] == [("reader", 200), (None, 401)]
    desk.client.__enter__()


def test_pages_can_load_nothing_from_elsewhere(desk: Desk) -> None:
    headers = desk.client.get("/livez").headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]


def test_a_body_that_is_too_large_is_refused(desk: Desk) -> None:
    answer = desk.client.post(
        f"{CLAIMS}/decisions", headers=desk.as_("reviewer"), content=b"x" * (1 << 21)
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
