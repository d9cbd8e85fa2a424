"""A client of `vcl serve` in a few lines: `pip install httpx`, then `Client.connect(URL, KEY)`.

In: the address of a server and a key. Out: what it answers, as types; an error as `ApiError`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import httpx

PIECE = 8 << 20  # bytes of one request of an upload in parts


class Accepted(TypedDict):
    video_id: str
    search_id: str | None
    asset_id: int | None
    title: str
    bytes: int


class Search(TypedDict):
    search_id: str
    query_id: str
    status: str
    reason: str | None
    message: str | None
    pairs_total: int
    pairs_left: int


class ApiError(Exception):
    """What the server says no to: a stable `code`, and a sentence for a person."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code}, {status})")
        self.status, self.code = status, code


@dataclass(frozen=True)
class Client:
    http: httpx.Client

    @classmethod
    def connect(cls, address: str, key: str, timeout: float = 90.0) -> Client:
        headers = {"Authorization": f"Bearer {key}"}
        return cls(httpx.Client(base_url=address, headers=headers, timeout=timeout))

    def call(self, method: str, path: str, **options: Any) -> Any:
        """One request; a POST carries an idempotency key, so that it may be sent again."""
        headers = dict(options.pop("headers", {}))
        if method == "POST":
            headers.setdefault("Idempotency-Key", str(uuid.uuid4()))
        answer = self.http.request(method, f"/api/v1{path}", headers=headers, **options)
        if answer.status_code >= 400:
            problem = answer.json() if answer.content else {}
            code, detail = problem.get("code", "error"), problem.get("detail", answer.reason_phrase)
            raise ApiError(answer.status_code, code, detail)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.json() if is_json else answer

    def pages(self, path: str, **wanted: Any) -> Iterator[dict[str, Any]]:
        """Every row of a list, page by page."""
        name = path.strip("/").split("/")[-1]
        while True:
            page = self.call("GET", path, params=wanted)
            yield from page[name]
            if page["next"] is None:
                return
            wanted["after"] = page["next"]

    def upload(self, video: Path, **facts: str) -> Accepted:
        """Upload a video in parts; cut off, it goes on where it was."""
        body = {"size": video.stat().st_size, "title": video.name, **facts}
        place = f"/uploads/sessions/{self.call('POST', '/uploads/sessions', json=body)['id']}"
        with video.open("rb") as file:
            while (offset := self._offset(place)) < body["size"]:
                file.seek(offset)
                headers = {"Upload-Offset": str(offset)}
                try:
                    self.call("PATCH", place, content=file.read(PIECE), headers=headers)
                except httpx.TransportError:
                    continue
        accepted: Accepted = self.call("POST", f"{place}/complete")
        return accepted

    def wait(self, search_id: str, seconds: float = 600.0) -> Search:
        """A search at its end, or as far as it is by then."""
        while True:
            patience = min(60.0, max(0.0, seconds))
            params = {"wait": patience}
            search: Search = self.call("GET", f"/searches/{search_id}", params=params)
            seconds -= patience
            is_open = search["status"] in ("waiting", "running", "localizing")
            if not is_open or seconds <= 0:
                return search

    def _offset(self, place: str) -> int:
        return int(self.call("HEAD", place).headers["upload-offset"])
