"""Too many requests at once, or connections that end in the middle: nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from vcl_plugin.web.incoming import Incoming, append_stream
from vcl_plugin.web.limits import Limits
from vcl_plugin.web.multipart import read_form
from vcl_plugin.web.problems import WebError


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(0.05)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def scope_of(path: str = "/api/v1/claims", **headers: str) -> Scope:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {
        **{"type": "http", "method": "POST", "path": path, "headers": named},
        **{"client": ("127.0.0.1", 1), "query_string": b""},
    }


def ask_at_once(rate: float, count: int) -> tuple[Counter[int], list[dict[str, Any]], int]:
    """Ask so often at the same moment; statuses, problems, and how many accesses were noted."""
    noted = 0
    statuses: Counter[int] = Counter()
    problems = []

    def note(scope: Scope, status: int, seconds: float) -> None:
        nonlocal noted
        noted += 1

    limits = Limits(slow, rate=rate, upload_bytes=1, note=note)

    async def ask() -> None:
        told: list[Message] = []

        async def send(message: Message) -> None:
            told.append(message)

        async def receive() -> Message:
            return {"type": "http.request", "body": b""}

        await limits(scope_of(), receive, send)
        statuses[told[0]["status"]] += 1
        if told[0]["status"] != 200:
            problems.append(json.loads(told[1]["body"]))

    async def ask_all() -> None:
        await asyncio.gather(*(ask() for _ in range(count)))

    asyncio.run(ask_all())
    assert limits.under_way == 0
    return statuses, problems, noted


def test_10000_requests_at_once_are_each_answered_or_told_to_come_back() -> None:
    statuses, problems, noted = ask_at_once(rate=1e9, count=10_000)
    assert statuses[200] >= 1000
    assert set(statuses) == {200, 503}
    assert sum(statuses.values()) == noted == 10_000
    assert {each["code"] for each in problems} == {"too_busy"}


def test_one_sender_that_is_too_fast_is_told_so() -> None:
    statuses, problems, _ = ask_at_once(rate=10, count=500)
    assert statuses[200] < 100
    assert {each["code"] for each in problems} == {"too_fast"}


def test_what_came_before_a_cut_is_kept(tmp_path: Path) -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield b"abc"
        yield b"def"
        raise ClientDisconnect

    part = Incoming(tmp_path).begin_part()
    with pytest.raises(WebError, match="cut off"):
        asyncio.run(append_stream(part, cut(), 100))
    assert part.read_bytes() == b"abcdef"


def test_a_form_that_is_cut_off_is_no_upload(tmp_path: Path) -> None:
    messages: list[Message] = [
        {
            "type": "http.request",
            "body": b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhalf',
            "more_body": True,
        },
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    scope = scope_of(content_type="multipart/form-data; boundary=b")
    part = Incoming(tmp_path).begin_part()
    with pytest.raises(WebError) as refused:
        asyncio.run(read_form(Request(scope, receive), {"file": part}))
    assert refused.value.code == "cut_off"
