"""The desk's pages without a browser: who gets in, what is shown, what a form does."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from retrieval.database import transaction
from tests.vcl_plugin import world
from tests.vcl_plugin.web.conftest import Desk
from vcl_plugin.claims import assets
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.web.keys import revoke_key
from vcl_plugin.web.sessions import COOKIE

Browser = Callable[[str], TestClient]


@pytest.fixture
def browser(desk: Desk) -> Browser:
    """A browser that logged in with the key of that name."""

    def log_in(name: str) -> TestClient:
        desk.client.cookies.clear()
        answer = desk.client.post("/login", data={"key": desk.keys[name]})
        assert answer.status_code == 200, answer.text
        return desk.client

    return log_in


def token_of(page: httpx.Response) -> str:
    found = re.search(r'data-csrf="([^"]+)"', page.text)
    assert found is not None
    return found[1]


def test_a_page_without_login_leads_to_it_and_back(desk: Desk) -> None:
    answer = desk.client.get("/claims?status=all", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fclaims%3Fstatus%3Dall"
    page = desk.client.get(answer.headers["location"])
    assert 'value="/claims?status=all"' in page.text
    body = {"key": desk.keys["reader"], "next": "/claims?status=all"}
    assert desk.client.post("/login", data=body).url.path == "/claims"


def test_a_login_leads_nowhere_else(desk: Desk) -> None:
    for address in ("https://evil.example/", "//evil.example", "/\\evil.example"):
        body = {"key": desk.keys["reader"], "next": address}
        answer = desk.client.post("/login", data=body, follow_redirects=False)
        assert answer.headers["location"] == "/claims"


def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(desk: Desk) -> None:
    answer = desk.client.post("/login", data={"key": desk.keys["reader"]}, follow_redirects=False)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert desk.keys["reader"] not in cookie
    foreign = {"Origin": "https://evil.example"}
    refused = desk.client.post("/login", data={"key": desk.keys["reader"]}, headers=foreign)
    assert refused.status_code == 403


def test_a_wrong_key_opens_no_session(desk: Desk) -> None:
    answer = desk.client.post("/login", data={"key": "vcl_wrong"})
    assert answer.status_code == 401
    assert COOKIE not in desk.client.cookies


def test_a_revoked_key_ends_its_sessions(desk: Desk, browser: Browser) -> None:
    client = browser("reviewer")
    assert client.get("/claims").url.path == "/claims"
    with transaction(desk.engine.database) as connection:
        revoke_key(connection, "reviewer")
    assert client.get("/claims").url.path == "/login"


def test_a_logout_ends_the_session(browser: Browser) -> None:
    client = browser("reader")
    client.post("/logout", data={"csrf_token": token_of(client.get("/claims"))})
    assert client.get("/claims").url.path == "/login"


def test_a_form_without_the_sessions_token_changes_nothing(desk: Desk, browser: Browser) -> None:
    client = browser("reviewer")
    path = f"/claims/{desk.claims['ten']}/decisions"
    for token in ({}, {"csrf_token": "guessed"}):
        answer = client.post(path, data={"verb": "confirm", **token})
        assert answer.status_code == 403
    assert _statuses(desk)["ten"] == "potential"


def test_the_queue_keeps_its_filters_in_the_address(browser: Browser) -> None:
    page = browser("reader").get("/claims?owner=Northlight&sort=newest&text=&min_seconds=")
    assert page.status_code == 200
    assert _listed(page) == ["twenty", "ten"]
    assert "/claims?sort=newest&amp;owner=Northlight&amp;status=active" in page.text


def test_a_filter_that_cannot_be_is_told_on_the_page(browser: Browser) -> None:
    page = browser("reader").get("/claims?min_seconds=many")
    assert page.status_code == 422
    assert "give a number" in page.text


def test_an_owners_reviewer_sees_and_learns_of_nothing_else(desk: Desk, browser: Browser) -> None:
    client = browser("reviewer of Northlight")
    assert _listed(client.get("/claims")) == ["twenty", "ten"]
    assert "Ostrava" not in client.get("/claims?status=all").text
    theirs = client.get(f"/claims/{desk.claims['forty']}")
    none = client.get("/claims/999999")
    assert theirs.status_code == none.status_code == 404
    number = f"claim {desk.claims['forty']};"
    assert number in theirs.text
    assert theirs.text.replace(number, "") == none.text.replace("claim 999999;", "")


def test_a_reader_is_shown_no_decision_and_may_make_none(desk: Desk, browser: Browser) -> None:
    client = browser("reader")
    page = client.get(f"/claims/{desk.claims['ten']}")
    assert 'id="decision"' not in page.text
    answer = client.post(
        f"/claims/{desk.claims['ten']}/decisions",
        data={"verb": "confirm", "csrf_token": token_of(page)},
    )
    assert answer.status_code == 403


def test_a_decision_leads_to_the_next_claim_and_can_be_undone(desk: Desk, browser: Browser) -> None:
    client = browser("reviewer")
    page = client.get(f"/claims/{desk.claims['forty']}?sort=seconds")
    form = {"csrf_token": token_of(page), "expected": "potential"}
    answer = client.post(
        f"/claims/{desk.claims['forty']}/decisions?sort=seconds",
        data={**form, "verb": "release", "reason": "fair_use", "note": "a review"},
    )
    assert answer.url.path == f"/claims/{desk.claims['twenty']}"
    assert "is <b>released</b> (fair use)" in answer.text
    assert _statuses(desk)["forty"] == "released"
    undone = client.post("/claims/undo", data={**form, "back": str(answer.url.path)})
    assert undone.url.path == f"/claims/{desk.claims['forty']}"
    assert _statuses(desk)["forty"] == "potential"


def test_not_a_match_is_a_release_as_misidentified(desk: Desk, browser: Browser) -> None:
    client = browser("reviewer")
    page = client.get("/claims")
    client.post(
        f"/claims/{desk.claims['ten']}/decisions",
        data={"verb": "no_match", "csrf_token": token_of(page), "reason": "fair_use"},
    )
    with transaction(desk.engine.database) as connection:
        row = connection.execute(
            text("SELECT status, reason FROM claims WHERE id = :id"), {"id": desk.claims["ten"]}
        ).one()
    assert tuple(row) == ("released", "misidentified")


def test_a_claim_that_moved_meanwhile_is_shown_as_it_is_by_now(
    desk: Desk, browser: Browser
) -> None:
    client = browser("reviewer")
    page = client.get(f"/claims/{desk.claims['ten']}")
    form = {"csrf_token": token_of(page), "expected": "potential", "verb": "confirm"}
    path = f"/claims/{desk.claims['ten']}/decisions"
    assert client.post(path, data=form).is_success
    again = client.post(path, data=form)
    assert again.status_code == 409
    assert "is active by now" in again.text or "cannot become" in again.text


def test_selected_claims_are_decided_at_once_and_undone_at_once(
    desk: Desk, browser: Browser
) -> None:
    client = browser("reviewer")
    form = {"csrf_token": token_of(client.get("/claims")), "back": "/claims?sort=newest"}
    ids = [str(desk.claims[name]) for name in ("ten", "forty")]
    answer = client.post(
        "/claims/decisions", data={**form, "id": ids, "verb": "release", "reason": "original"}
    )
    assert str(answer.url).endswith("/claims?sort=newest")
    assert "2 claims are <b>released</b>" in answer.text
    assert _statuses(desk) == {"ten": "released", "twenty": "potential", "forty": "released"}
    client.post("/claims/undo", data=form)
    assert set(_statuses(desk).values()) == {"potential"}


def test_selected_claims_that_cannot_be_decided_so_are_told(desk: Desk, browser: Browser) -> None:
    client = browser("reviewer")
    form = {"csrf_token": token_of(client.get("/claims")), "back": "/claims"}
    ids = [str(each) for each in desk.claims.values()]
    answer = client.post("/claims/decisions", data={**form, "id": ids, "verb": "uphold"})
    assert "3 of the selected claims could not be decided so" in answer.text
    assert client.post("/claims/decisions", data={**form, "verb": "confirm"}).status_code == 422


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("x\u202egpj.exe", "x\\u202egpj.exe"),
        ("ä" * 500, "ä" * 500),
        (" \u200b ", "(no title)"),
        ("'\"><b>", "'\"><b>"),
    ],
)
def test_titles_are_shown_as_text_whatever_they_hold(
    desk: Desk, browser: Browser, title: str, shown: str
) -> None:
    with transaction(desk.engine.database) as connection:
        connection.execute(text("UPDATE videos SET title = :title"), {"title": title})
        connection.execute(text("UPDATE assets SET title = :title || id"), {"title": title})
    client = browser("reviewer")
    for path in ("/claims", f"/claims/{desk.claims['ten']}"):
        page = client.get(path)
        assert page.status_code == 200
        assert "\u202e" not in page.text
        assert "<script>alert" not in page.text
        assert f"<bdi>{shown}</bdi>" in unescape(page.text)


def test_reports_are_of_ones_own_owners(desk: Desk, browser: Browser) -> None:
    client = browser("reviewer of Northlight")
    for path in ("/reports", "/reports/infringing_segments", "/reports/claims_open"):
        page = client.get(path)
        assert page.status_code == 200
        assert "Ostrava" not in page.text
        assert "tram" not in page.text
    assert client.get("/reports/reference_conflicts").status_code == 404
    assert "Ostrava" in browser("reader").get("/reports/infringing_segments").text


def test_a_model_is_wrong_as_often_as_people_found_no_match(desk: Desk, browser: Browser) -> None:
    assert "Nobody has judged a claim yet" in browser("reader").get("/reports").text
    for name, verb in (("ten", "confirm"), ("twenty", "no_match"), ("forty", "confirm")):
        client = browser("reviewer")
        form = {"verb": verb, "csrf_token": token_of(client.get("/claims"))}
        client.post(f"/claims/{desk.claims[name]}/decisions", data=form)
    assert "33.3 % (1 of 3)" in browser("reader").get("/reports").text
    assert "50 % (1 of 2)" in browser("reviewer of Northlight").get("/reports").text


def test_a_search_that_somebody_else_asked_for_is_not_there(desk: Desk, browser: Browser) -> None:
    with transaction(desk.engine.database) as connection:
        [search] = connection.execute(
            text("SELECT id FROM searches WHERE query_id = 'forty'")
        ).scalars()
    path = f"/searches/{search}"
    assert browser("reader").get(path).status_code == 200
    assert browser("reviewer of Northlight").get(path).status_code == 404


def test_references_and_owners_are_of_ones_own(desk: Desk, browser: Browser) -> None:
    """A conflict names the other owner to nobody who may not see it."""
    with transaction(desk.engine.database) as connection:
        world.record(connection, "harbour", "tram", world.segment(0, 30))
        settle_claims(connection, "harbour")
    client = browser("reviewer of Northlight")
    for path in ("/references", "/owners", "/owners/assets?owner=Northlight"):
        page = client.get(path)
        assert page.status_code == 200
        assert "harbour" in page.text or "Northlight" in page.text
        assert "Ostrava" not in page.text
        assert "tram" not in page.text
    assert "another owner" in client.get("/references").text
    assert client.get("/owners/assets?owner=Ostrava").status_code == 404
    everything = browser("reader").get("/references").text
    assert "Ostrava" in everything
    assert "another owner" not in everything
    assert "0:20 (20 %)" in everything  # of harbour: ten and twenty seconds, counted once


def test_why_not_more_names_what_was_held_and_what_was_compared(
    desk: Desk, browser: Browser
) -> None:
    with transaction(desk.engine.database) as connection:
        world.add_upload(connection, "trailer")
        asset = connection.execute(text("SELECT asset_id FROM claims WHERE query_id = 'ten'"))
        assets.add_reference(connection, "trailer", asset.scalar_one())
    page = browser("reader").get(f"/claims/{desk.claims['ten']}/more")
    assert "harbour</bdi>: waits to be compared" in page.text
    assert "trailer</bdi>: was no candidate" in page.text


def test_pages_hold_no_script_and_no_style_of_their_own(desk: Desk, browser: Browser) -> None:
    client = browser("manager")
    for path in ("/claims", f"/claims/{desk.claims['ten']}", "/claims/999"):
        page = client.get(path).text
        assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []
        assert re.findall(r"\sstyle=|<style|\son\w+=|javascript:", page) == []


def test_files_of_the_pages_stay_with_the_browser_until_they_change(browser: Browser) -> None:
    client = browser("reader")
    address = re.search(r'href="(/static/desk\.css\?v=\w+)"', client.get("/claims").text)
    assert address is not None
    answer = client.get(address[1])
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
    assert client.get("/static/../app.py").status_code == 404


def _listed(page: httpx.Response) -> list[str]:
    return re.findall(r'class="open"[^>]*><bdi>([^<]*)</bdi>', page.text)


def _statuses(desk: Desk) -> dict[str, str]:
    with transaction(desk.engine.database) as connection:
        rows = connection.execute(text("SELECT id, status FROM claims")).all()
    names = {number: name for name, number in desk.claims.items()}
    return {names[row.id]: row.status for row in rows}
