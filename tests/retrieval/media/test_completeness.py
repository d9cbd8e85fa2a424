"""What a file says of its own length is counted; what it says in bad faith costs nothing."""

from __future__ import annotations

import os
import struct
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.media.completeness import MAX_BOXES, missing_bytes


def missing_in(content: bytes) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        before = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        found = missing_bytes(file.fileno())
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == before
        return found


def box(kind: bytes, length: int, content: bytes = b"") -> bytes:
    return struct.pack(">I4s", length, kind) + content


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        (b"RIFF" + struct.pack("<I", 100) + b"AVI " + bytes(50), 46),
        (box(b"ftyp", 16, bytes(8)) + box(b"moov", 8) + box(b"mdat", 1000), 992),
        (box(b"ftyp", 16, bytes(8)) + box(b"mdat", 8), 1),
        (box(b"ftyp", 16, bytes(8)) + box(b"moov", 0), 0),
        (box(b"ftyp", 1, struct.pack(">Q", 1 << 40)), (1 << 40) - 16 + 0),
        (b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\x90" + bytes(10), 6),
        (b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\xff" + bytes(10), 0),
        (b"a film without a structure", 0),
    ],
)
def test_what_the_structure_promises_and_the_file_lacks_is_missing(
    content: bytes, missing: int
) -> None:
    assert missing_in(content) == missing


@pytest.mark.parametrize("content", [b"RIFF", b"\x1a\x45\xdf\xa3", b"\0\0\0\x08ftyp", b""])
def test_a_head_and_nothing_more_is_no_crash(content: bytes) -> None:
    """Each of these once ended the decoder with a traceback, as if the file had broken it."""
    assert missing_in(content) == 0


def test_a_million_tiny_boxes_are_not_all_walked() -> None:
    assert missing_in(box(b"ftyp", 8) * (MAX_BOXES * 2)) == 1


@given(
    st.sampled_from([b"RIFF", b"\x1a\x45\xdf\xa3", b"\0\0\0\x10ftyp", b"\0\0\0\x01mdat"]),
    st.binary(max_size=300),
)
def test_any_bytes_after_a_known_head_give_a_count(head: bytes, rest: bytes) -> None:
    assert missing_in(head + rest) >= 0
