"""Problems: every error of the API as `application/problem+json` with our reason codes.

In: an exception. Out: a status and a body after RFC 9457, whose `code` is the stable word.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from retrieval.errors import (
    BadSetting,
    MissingWeights,
    Moved,
    NotFound,
    Refused,
    RetrievalError,
    SchemaOutdated,
    ServiceUnavailable,
    UnknownPlugin,
)

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
# The first class that fits gives the status.
STATUSES: tuple[tuple[type[RetrievalError], int], ...] = (
    (NotFound, 404),
    (Moved, 409),
    (ServiceUnavailable, 503),
    (SchemaOutdated, 503),
    (MissingWeights, 503),
    (UnknownPlugin, 503),
    (BadSetting, 503),
    (RetrievalError, 422),
)
BY_CODE = {"forbidden": 403, "timeout": 504, "too_late": 409, "nothing_to_undo": 409}
WORDS = {404: "not_found", 405: "not_allowed", 413: "body_too_large"}


class Problem(BaseModel):
    """What went wrong: `detail` is a sentence for a person, `code` a stable word."""

    type: str = Field(description="urn:vcl:reason: and the code")
    title: str
    status: int
    detail: str
    code: str
    state: dict[str, Any] | None = Field(None, description="what the thing is by now, on a 409")
    errors: list[dict[str, Any]] | None = Field(None, description="which fields are wrong")


class WebError(RetrievalError):
    """An error that only HTTP knows, with its status."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int,
        headers: Mapping[str, str] | None = None,
        state: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.headers = headers
        self.state = state


# For every router: any status of these classes carries a problem.
RESPONSES: dict[int | str, dict[str, Any]] = {
    pattern: {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for pattern, description in (
        ("4XX", "a request that may not be done, and why"),
        ("5XX", "a server that cannot do it now, and why"),
    )
}


def write_problem(
    status: int,
    code: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> JSONResponse:
    body = {
        "type": f"urn:vcl:reason:{code}",
        "title": code.replace("_", " "),
        "status": status,
        "detail": detail,
        "code": code,
        **{name: value for name, value in more.items() if value is not None},
    }
    return JSONResponse(body, status, dict(headers or {}), media_type=MEDIA_TYPE)


def status_of(error: RetrievalError) -> int:
    if isinstance(error, WebError):
        return error.status
    if isinstance(error, Refused) and error.code in BY_CODE:
        return BY_CODE[error.code]
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def answer_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RetrievalError)
    status = status_of(error)
    headers = error.headers if isinstance(error, WebError) else None
    if status == 503:
        log.warning("%s %s: %s", request.method, request.url.path, error)
        headers = {"Retry-After": "5", **(headers or {})}
    state = getattr(error, "state", None)
    return write_problem(status, error.code, str(error), headers, state=state)


def answer_validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = [
        {"where": ".".join(map(str, each["loc"])), "message": each["msg"]}
        for each in error.errors()
    ]
    first = errors[0] if errors else {"where": "body", "message": "cannot be read"}
    return write_problem(
        422, "bad_arguments", f"{first['where']}: {first['message']}", errors=errors[:20]
    )


def answer_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = WORDS.get(error.status_code, "bad_request")
    return write_problem(error.status_code, code, str(error.detail), error.headers)


def answer_unexpected(request: Request, error: Exception) -> JSONResponse:
    """What nobody foresaw: the log has it, the caller learns nothing of our insides."""
    log.exception("%s %s failed", request.method, request.url.path, exc_info=error)
    return write_problem(500, "error", "an error that nobody foresaw; the server's log has it")


def install_problems(app: FastAPI) -> None:
    app.add_exception_handler(RetrievalError, answer_error)
    app.add_exception_handler(RequestValidationError, answer_validation)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(Exception, answer_unexpected)
