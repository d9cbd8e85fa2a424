"""Rights and findings over HTTP: assets, references, policies, reports, reasons, comparisons."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
from sqlalchemy import text

from retrieval.database import transaction
from tests.vcl_plugin.web.conftest import Desk
from vcl_plugin.claims import assets

V1 = "/api/v1"


def post(desk: Desk, path: str, body: Any, name: str = "manager", status: int = 201) -> Any:
    answer = desk.client.post(f"{V1}/{path}", headers=desk.as_(name), json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def get(desk: Desk, path: str, name: str = "reader", **wanted: Any) -> Any:
    answer = desk.client.get(f"{V1}/{path}", headers=desk.as_(name), params=wanted)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_asset_is_added_shared_and_removed(desk: Desk) -> None:
    made = post(desk, "assets", {"owner": "Ana", "title": "Sea"})
    assert post(desk, "assets", {"owner": "Ana", "title": "Sea"}) == made
    path = f"assets/{made['id']}"
    shared = post(desk, f"{path}/shares", {"owner": "Ana", "percent": 60}, status=200)
    assert (shared["is_settled"], shared["expired_claims"]) == (True, [])
    post(desk, f"{path}/shares", {"owner": "Bo", "percent": 50}, status=422)
    post(desk, f"{path}/shares", {"owner": "Bo", "percent": 40, "territory": "WW"}, status=200)
    assert {each["owner"]: each["percent"] for each in get(desk, path)["shares"]} == {
        "Ana": 60.0,
        "Bo": 40.0,
    }
    removed = desk.client.delete(f"{V1}/{path}", headers=desk.as_("manager")).json()
    assert removed["references"] == []
    assert "Sea" not in {each["title"] for each in get(desk, "assets")["assets"]}


def test_lists_are_read_page_by_page(desk: Desk) -> None:
    for name in ("owners", "assets", "references", "segments", "uploads", "searches"):
        whole = get(desk, name)[name]
        assert len(whole) >= 2, name
        seen: list[Any] = []
        after: dict[str, str] = {}
        while True:
            page = get(desk, name, limit=1, **after)
            seen += page[name]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert seen == whole, name
        wrong = desk.client.get(
            f"{V1}/{name}", headers=desk.as_("reader"), params={"after": "bm9uZQ"}
        )
        assert (wrong.status_code, wrong.json()["code"]) == (422, "bad_cursor")


def test_an_exclusion_lets_claims_expire_and_says_which(desk: Desk) -> None:
    body = {"video_id": "harbour", "start": 0, "end": 100, "note": "licensed"}
    changed = post(desk, "references/exclusions", body)
    assert sorted(changed["expired_claims"]) == [desk.claims["ten"], desk.claims["twenty"]]
    [row] = get(desk, "references/exclusions", video="harbour")
    assert (row["start"], row["end"], row["actor"]) == (0.0, 100.0, "manager")
    post(desk, "references/exclusions", {**body, "end": 0.0001}, status=422)


def test_a_reference_is_removed_and_added_again(desk: Desk) -> None:
    with transaction(desk.engine.database) as connection:
        asset_id = assets.find_holder(connection, "harbour")
    me = desk.as_("manager")
    gone = desk.client.delete(f"{V1}/references", headers=me, params={"video": "harbour"})
    assert gone.json() == {"video_id": "harbour"}
    again = desk.client.delete(f"{V1}/references", headers=me, params={"video": "harbour"})
    assert again.status_code == 404
    post(desk, "references", {"video_id": "harbour", "asset_id": asset_id})
    assert "harbour" in {each["id"] for each in get(desk, "references")["references"]}


def test_a_policy_is_tried_written_and_assigned(desk: Desk) -> None:
    rules = [{"action": "block", "min_seconds": 15}]
    tried = post(desk, "policies/dry-run", {"rules": rules}, status=200)
    assert {row["query"] for row in tried} == {"twenty", "forty"}
    scoped = post(desk, "policies/dry-run", {"rules": rules}, "reader of Northlight", 200)
    assert {row["query"] for row in scoped} == {"twenty"}
    written = post(desk, "policies", {"name": "strict", "rules": rules})
    assert written["version"] == 1
    body = {"policy": "strict", "owner": "Northlight"}
    changed = post(desk, "policies/assignments", body, "manager of Northlight", 200)
    assert changed["expired_claims"] == [desk.claims["ten"]]
    policies = {row["policy"]: row for row in get(desk, "policies")["rules"]}
    assert policies["strict"]["author"] == "manager"
    contradiction = [{"action": "block"}, {"action": "track"}]
    post(desk, "policies", {"name": "odd", "rules": contradiction}, status=422)


def test_a_report_is_streamed_as_json_and_as_csv(desk: Desk) -> None:
    with transaction(desk.engine.database) as connection:
        connection.execute(text("UPDATE claims SET status = 'active'"))
    rows = get(desk, "reports/infringing_segments")
    assert {row["query"] for row in rows} == {"ten", "twenty", "forty"}
    answer = desk.client.get(
        f"{V1}/reports/infringing_segments",
        headers=desk.as_("reader of Ostrava"),
        params={"format": "csv"},
    )
    assert answer.headers["content-type"].startswith("text/csv")
    assert [row["query"] for row in csv.DictReader(io.StringIO(answer.text))] == ["forty"]
    for name in {each["report"] for each in get(desk, "reports")}:
        assert isinstance(get(desk, f"reports/{name}", limit=5), list)
    nothing = desk.client.get(f"{V1}/reports/pg_user", headers=desk.as_("reader"))
    assert (nothing.status_code, nothing.json()["code"]) == (404, "not_found")


def test_segments_are_filtered(desk: Desk) -> None:
    claimed = get(desk, "segments", claim=desk.claims["forty"])["segments"]
    assert [(row["query_id"], row["query_end"]) for row in claimed] == [("forty", 40.0)]
    assert get(desk, "segments", min_seconds=15, owner="Northlight")["segments"][0]["query"] == (
        "twenty"
    )
    assert get(desk, "segments", reversed=True)["segments"] == []
    with transaction(desk.engine.database) as connection:
        search = connection.execute(
            text("SELECT id FROM searches WHERE query_id = 'ten'")
        ).scalar_one()
    assert [row["query"] for row in get(desk, "segments", search=search)["segments"]] == ["ten"]


def test_evidence_is_a_page_that_may_run_its_own_scripts_alone(desk: Desk) -> None:
    answer = desk.client.get(
        f"{V1}/claims/{desk.claims['ten']}/evidence", headers=desk.as_("reader")
    )
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "unsafe" not in policy.split("script-src")[1]
    assert "harbour" in answer.text


def test_two_arrays_are_compared_and_the_copy_is_found(desk: Desk) -> None:
    random = np.random.default_rng(1)
    query, reference = (random.standard_normal((60, 256)).astype(np.float32) for _ in range(2))
    query[10:40] = reference[20:50]

    def as_file(array: Any) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, array / np.linalg.norm(array, axis=1, keepdims=True))
        return buffer.getvalue()

    def compare(first: bytes) -> Any:
        return desk.client.post(
            f"{V1}/comparisons/files",
            headers=desk.as_("reader"),
            data={"method": "tn"},
            files={"query": first, "reference": as_file(reference)},
        )

    [found] = compare(as_file(query)).json()["segments"]
    assert abs(found["query_start"] - 10) < 2
    assert abs(found["reference_end"] - 50) < 2
    wrong = compare(b"no array")
    assert (wrong.status_code, wrong.json()["code"]) == (422, "not_an_array")
    parts = desk.engine.settings.upload_dir / "incoming"
    assert list(parts.glob("*")) == []
    assert str(parts) not in wrong.text


def test_status_tells_what_runs_and_what_waits(desk: Desk) -> None:
    status = get(desk, "status")
    assert status["counts"]["videos"] == 5
    assert {each["name"] for each in status["services"]} == {"database", "broker"}
