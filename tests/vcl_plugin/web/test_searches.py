"""Searches over HTTP: asked for, listed, waited for, followed, cancelled; and by whom."""

from __future__ import annotations

import json
import threading
import time

from retrieval.database import transaction
from retrieval.work import searches
from tests.vcl_plugin.web.conftest import Desk

SEARCHES = "/api/v1/searches"


def ask(desk: Desk, name: str = "service", video: str = "ten") -> str:
    answer = desk.client.post(SEARCHES, headers=desk.as_(name), json={"video_id": video})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["search_id"])


def finish(desk: Desk, search_id: str) -> None:
    with transaction(desk.engine.database) as connection:
        searches.count_opened(connection, search_id, total=0, left=0)


def test_a_search_is_asked_for_read_and_listed(desk: Desk) -> None:
    search_id = ask(desk)
    found = desk.client.get(f"{SEARCHES}/{search_id}", headers=desk.as_("reader")).json()
    assert (found["status"], found["query_id"], found["asked_by"]) == ("waiting", "ten", "service")
    listed = desk.client.get(SEARCHES, headers=desk.as_("reader"), params={"video": "ten"}).json()
    assert search_id in {each["search_id"] for each in listed["searches"]}
    mine = desk.client.get(SEARCHES, headers=desk.as_("service"), params={"mine": True}).json()
    assert [each["search_id"] for each in mine["searches"]] == [search_id]


def test_a_long_poll_answers_when_the_search_ends(desk: Desk) -> None:
    search_id = ask(desk)
    path, me = f"{SEARCHES}/{search_id}", desk.as_("service")
    early = desk.client.get(path, headers=me, params={"wait": 0.3}).json()
    assert early["status"] == "waiting"
    timer = threading.Timer(0.5, finish, (desk, search_id))
    timer.start()
    started = time.monotonic()
    late = desk.client.get(path, headers=me, params={"wait": 50}).json()
    assert late["status"] == "done"
    assert time.monotonic() - started < 40
    timer.join()


def test_a_stream_tells_every_state_until_the_end(desk: Desk) -> None:
    search_id = ask(desk)
    timer = threading.Timer(0.5, finish, (desk, search_id))
    timer.start()
    answer = desk.client.get(f"{SEARCHES}/{search_id}/events", headers=desk.as_("service"))
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = [
        json.loads(line.removeprefix("data: "))
        for line in answer.text.splitlines()
        if line.startswith("data: ")
    ]
    assert [each["status"] for each in told] == ["waiting", "done"]
    timer.join()


def test_a_search_is_cancelled_once_and_not_after_its_end(desk: Desk) -> None:
    first, second, me = ask(desk), ask(desk), desk.as_("service")
    cancelled = desk.client.post(f"{SEARCHES}/{first}/cancel", headers=me).json()
    assert cancelled["status"] in ("failed", "cancelled")
    assert desk.client.post(f"{SEARCHES}/{first}/cancel", headers=me).status_code == 200
    finish(desk, second)
    late = desk.client.post(f"{SEARCHES}/{second}/cancel", headers=me)
    assert late.status_code == 409


def test_a_key_with_owners_sees_the_searches_that_it_asked_for(desk: Desk) -> None:
    theirs, mine = ask(desk), ask(desk, "manager of Northlight")
    me = desk.as_("manager of Northlight")
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
        there = desk.client.request(method, f"{SEARCHES}/{theirs}{path}", headers=me)
        none = desk.client.request(method, f"{SEARCHES}/none{path}", headers=me)
        assert there.status_code == none.status_code == 404
        assert there.text.replace(theirs, "none") == none.text
    listed = desk.client.get(SEARCHES, headers=me).json()["searches"]
    assert [each["search_id"] for each in listed] == [mine]
    unseen = desk.client.post(SEARCHES, headers=me, json={"video_id": "forty"})
    assert unseen.status_code == 404
