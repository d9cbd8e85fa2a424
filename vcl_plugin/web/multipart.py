"""Multipart bodies, read as they come: fields into memory, files to the disk.

In: a request whose sender is known to be allowed to send it. Out: its fields, and its files' names.
The framework's own reader would take gigabytes of anybody before it looks at their key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from vcl_plugin.web.incoming import BUFFER, append_bytes
from vcl_plugin.web.problems import WebError

FIELD_BYTES = 1 << 16  # of all fields together
MOST_PARTS = 64


@dataclass
class Form:
    """What a body held: text by the name of its field, and what each file was called."""

    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


async def read_form(request: Request, files: Mapping[str, Path]) -> Form:
    """Read a body; the bytes of each part that is named in `files` are appended to that file."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        _refuse("the body must be multipart/form-data with a boundary")
    reader = _Reader(boundary, frozenset(files))
    try:
        async for chunk in request.stream():
            reader.feed(chunk)
            await _write(reader, files, BUFFER)
    except MultipartParseError as error:
        _refuse(f"the body is no multipart/form-data ({error})")
    except ClientDisconnect:
        raise WebError("the upload was cut off", code="cut_off", status=400) from None
    if not reader.is_whole:
        _refuse("the body ends before its last border, so something of it is missing")
    await _write(reader, files, 1)
    return reader.form()


async def _write(reader: _Reader, files: Mapping[str, Path], from_bytes: int) -> None:
    """Hand what has gathered to the disk."""
    for name, content in reader.contents.items():
        if len(content) >= from_bytes:
            await run_in_threadpool(append_bytes, files[name], bytes(content))
            content.clear()


class _Reader:
    """Collects what the parser finds."""

    def __init__(self, boundary: bytes, files: frozenset[str]) -> None:
        self.contents = {name: bytearray() for name in files}
        self.is_whole = False
        self._texts: dict[str, bytearray] = {}
        self._names: dict[str, str] = {}
        self._header, self._value = bytearray(), bytearray()
        self._disposition = b""
        self._target = bytearray()
        self._parts = self._bytes = 0
        self._is_text = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._read_header,
                "on_header_value": self._read_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._begin_content,
                "on_part_data": self._read_content,
                "on_end": self._end,
            },
        )

    def feed(self, chunk: bytes) -> None:
        self._parser.write(chunk)

    def form(self) -> Form:
        texts = {name: value.decode("utf-8", "replace") for name, value in self._texts.items()}
        return Form(texts, dict(self._names))

    def _begin_part(self) -> None:
        self._parts += 1
        self._disposition = b""
        if self._parts > MOST_PARTS:
            _refuse(f"the body has more than {MOST_PARTS} parts")

    def _read_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _read_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def _begin_content(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name in self._texts or name in self._names:
            _refuse(f"the field {name[:40]!r} stands twice in the body")
        self._is_text = name not in self.contents
        if self._is_text:
            self._target = self._texts[name] = bytearray()
        else:
            self._names[name] = options.get(b"filename", b"").decode("utf-8", "replace")
            self._target = self.contents[name]

    def _read_content(self, data: bytes, start: int, end: int) -> None:
        if self._is_text:
            self._bytes += end - start
            if self._bytes > FIELD_BYTES:
                _refuse(f"the fields of the body have more than {FIELD_BYTES} bytes")
        self._target += data[start:end]

    def _end(self) -> None:
        self.is_whole = True


def describe_form(schema: dict[str, Any]) -> dict[str, Any]:
    """The body of a route for the OpenAPI document, since the framework does not read it."""
    return {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    }


def _refuse(message: str) -> NoReturn:
    raise WebError(message, code="bad_arguments", status=422)
