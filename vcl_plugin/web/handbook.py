"""`/docs`: every endpoint on one page, made on the server from the OpenAPI document.

In: the document. Out: HTML without scripts and without anything from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, select_autoescape

METHODS = ("get", "head", "post", "put", "patch", "delete")


def add_handbook(app: FastAPI) -> None:
    """Serve the page and its style; both need no key, like the document itself."""

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    def read_docs() -> HTMLResponse:
        return HTMLResponse(write_handbook(app.openapi(), str(app.openapi_url)))

    @app.get("/docs.css", include_in_schema=False)
    def read_style() -> Response:
        style = files("vcl_plugin.web").joinpath("templates/docs.css").read_text("utf-8")
        return Response(style, media_type="text/css")


def write_handbook(document: dict[str, Any], address: str) -> str:
    pages = Environment(
        loader=PackageLoader("vcl_plugin.web"),
        autoescape=select_autoescape(),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    groups: dict[str, list[dict[str, Any]]] = {}
    for operation in _list_operations(document):
        groups.setdefault(operation["tag"], []).append(operation)
    return pages.get_template("docs.html").render(
        document=document,
        groups=groups,
        schemas=list(_list_schemas(document)),
        names=list(document["components"]["schemas"]),
        address=address,
    )


def _list_operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method not in methods:
                continue
            found = methods[method]
            body = found.get("requestBody", {}).get("content", {})
            yield {
                "tag": found.get("tags", ["other"])[0],
                "method": method.upper(),
                "path": path,
                "summary": found.get("description") or found.get("summary", ""),
                "parameters": [
                    {**each, "type": _name_type(each.get("schema", {}))}
                    for each in found.get("parameters", [])
                ],
                "bodies": [(kind, _name_type(each["schema"])) for kind, each in body.items()],
                "answers": [
                    (status, each.get("description", ""), _name_types(each))
                    for status, each in found["responses"].items()
                    if status not in ("4XX", "5XX")
                ],
            }


def _list_schemas(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        needed = schema.get("required", [])
        yield {
            "name": name,
            "description": schema.get("description", ""),
            "values": schema.get("enum", []),
            "fields": [
                (
                    *(field, _name_type(each), field in needed),
                    *(each.get("description", ""), each.get("default")),
                )
                for field, each in schema.get("properties", {}).items()
            ],
        }


def _name_types(answer: dict[str, Any]) -> str:
    kinds = answer.get("content", {})
    return ", ".join(
        _name_type(each.get("schema", {})) if kind == "application/json" else kind
        for kind, each in kinds.items()
    )


def _name_type(schema: dict[str, Any]) -> str:
    """A type in a few words.

    >>> _name_type({"type": "array", "items": {"$ref": "#/components/schemas/Row"}})
    'list of Row'
    >>> _name_type({"anyOf": [{"type": "string"}, {"type": "null"}]})
    'string or null'
    """
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(_name_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_name_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and schema.get("properties"):
        return f"fields {', '.join(schema['properties'])}"
    return str(schema.get("format") or schema.get("type") or "anything")
