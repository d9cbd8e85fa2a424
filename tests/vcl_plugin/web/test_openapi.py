"""Every endpoint against its own description: no 500, and no answer that the document denies."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as bounded
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy import text

from retrieval.database import transaction
from tests.vcl_plugin.web.conftest import Desk

EXAMPLES = 6  # of each endpoint; enough for every parameter to be wrong once
CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    ignored_auth,
]


def test_every_endpoint_answers_as_its_description_says(desk: Desk) -> None:
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", desk.client.app)
    failures: list[str] = []
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @bounded(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Any) -> None:
            nonlocal tried
            tried += 1
            case.call_and_validate(headers=desk.as_("manager"), checks=CHECKS)

        try:
            ask()
        except (Exception, BaseExceptionGroup) as error:
            failures.append(f"{operation.label}: {error}"[:1500])
    assert failures == []
    assert tried >= 3 * len(list(schema.get_all_operations()))


def test_the_document_is_openapi_3_1_and_types_every_answer(desk: Desk) -> None:
    document = desk.client.get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert [name for name in document["components"]["schemas"] if "__" in name] == []
    untyped = [
        f"{method} {path} {status}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for status, answer in operation["responses"].items()
        if status not in ("204",) and method != "head"
        for content in answer.get("content", {"": {}}).values()
        if not content.get("schema")
    ]
    assert untyped == []
    problems = [
        f"{method} {path}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if not {"4XX", "5XX"} <= set(operation["responses"])
    ]
    assert problems == []


def test_every_list_is_read_by_cursor(desk: Desk) -> None:
    document = desk.client.get("/api/v1/openapi.json").json()
    for path, methods in document["paths"].items():
        names = {each["name"] for each in methods.get("get", {}).get("parameters", [])}
        # A report is streamed whole, so `limit` cuts it and nothing follows.
        if "limit" in names and not path.startswith("/api/v1/reports/"):
            assert "after" in names, path


def test_the_page_of_the_docs_needs_nothing_from_elsewhere(desk: Desk) -> None:
    page = desk.client.get("/docs")
    assert page.status_code == 200
    document = desk.client.get("/api/v1/openapi.json").json()
    assert [path for path in document["paths"] if path not in page.text] == []
    assert "<script" not in page.text
    addresses = re.findall(r"(?:href|src|action)=\"([^\"]*)", page.text)
    assert [each for each in addresses if not each.startswith(("#", "/"))] == []
    assert desk.client.get("/docs.css").headers["content-type"].startswith("text/css")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"verb": 1e999}', b"\xff\xfe", json.dumps([[]] * 9).encode()],
)
def test_a_body_that_is_no_json_of_the_endpoint_is_a_problem(desk: Desk, body: bytes) -> None:
    headers = desk.as_("manager") | {"Content-Type": "application/json"}
    with transaction(desk.engine.database) as connection:
        before = connection.execute(text("SELECT count(*) FROM claim_events")).scalar_one()
    for path in ("claims/decisions", "assets", "policies", "searches", "uploads/sessions"):
        answer = desk.client.post(f"/api/v1/{path}", headers=headers, content=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_arguments"), answer.text
    with transaction(desk.engine.database) as connection:
        after = connection.execute(text("SELECT count(*) FROM claim_events")).scalar_one()
    assert after == before
