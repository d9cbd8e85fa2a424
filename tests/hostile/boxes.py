"""Hand-made headers that lie: MP4 boxes, Matroska elements, AVI chunks.

In: nothing. Out: names and bytes of small files that claim to be huge, deep or endless.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

FTYP = struct.pack(">I4s4sI4s", 20, b"ftyp", b"isom", 512, b"isom")


def box(kind: bytes, content: bytes = b"", length: int | None = None) -> bytes:
    """An MP4 box; `length` is what it claims."""
    return struct.pack(">I4s", len(content) + 8 if length is None else length, kind) + content


def element(name: int, content: bytes, length: int | None = None) -> bytes:
    """A Matroska element with a length of eight bytes; `length` is what it claims."""
    size = (length if length is not None else len(content)) | (1 << 56)
    return name.to_bytes((name.bit_length() + 7) // 8, "big") + size.to_bytes(8, "big") + content


def matroska(*parts: bytes, length: int | None = None) -> bytes:
    head = element(0x1A45DFA3, element(0x4282, b"matroska"))
    return head + element(0x18538067, b"".join(parts), length)


def track(*parts: bytes, width: int = 64, height: int = 48, codec: bytes = b"V_VP8") -> bytes:
    picture = element(0xB0, width.to_bytes(4, "big")) + element(0xBA, height.to_bytes(4, "big"))
    facts = element(0xD7, b"\1") + element(0x73C5, b"\1") + element(0x83, b"\1")
    return element(
        0x1654AE6B, element(0xAE, facts + element(0x86, codec) + element(0xE0, picture, None))
    ) + b"".join(parts)


def packed_track(codec: bytes = b"V_MJPEG") -> bytes:
    """A track whose blocks are zlib streams."""
    packing = element(
        0x6D80, element(0x6240, element(0x5034, element(0x4254, b"\0") + element(0x4255, b"")))
    )
    facts = element(0xD7, b"\1") + element(0x73C5, b"\1") + element(0x83, b"\1")
    picture = element(0xE0, element(0xB0, b"\x40") + element(0xBA, b"\x30"))
    return element(0x1654AE6B, element(0xAE, facts + element(0x86, codec) + picture + packing))


def cluster(block: bytes) -> bytes:
    return element(0x1F43B675, element(0xE7, b"\0") + element(0xA3, b"\x81\0\0\x80" + block))


def black_picture(width: int, height: int) -> bytes:
    """A PNG of one bit a pixel: a gigapixel in a few hundred kilobytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(((width + 7) // 8 + 1) * height), 1)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    )


def lying_headers() -> Iterator[tuple[str, bytes]]:
    """Name and content of each; none is over two megabytes, most are under one kilobyte."""
    zeros = zlib.compress(bytes(1 << 28), 1)  # 256 MB in 1 MB
    moov = box(b"moov", box(b"mvhd", bytes(100)))
    yield "moov-of-4-gb.mp4", FTYP + box(b"moov", bytes(64), 0xFFFFFFFF)
    yield "moov-of-2-to-63.mp4", FTYP + struct.pack(">I4sQ", 1, b"moov", (1 << 63) - 1)
    yield "box-of-length-7.mp4", FTYP + box(b"moov", b"", 7)
    yield "100000-boxes.mp4", FTYP + box(b"free") * 100_000
    deep = b"".join(box(b"moov", b"", 8 * (50_000 - n)) for n in range(50_000))
    yield "50000-boxes-deep.mp4", FTYP + deep
    yield "1000-tracks.mp4", FTYP + box(b"moov", box(b"trak", box(b"mdia")) * 20_000)
    for name, table in (
        ("stsz", struct.pack(">IIII", 0, 0, 0xFFFFFFFF, 0)),
        ("stts", struct.pack(">III", 0, 0x0FFFFFFF, 1)),
        ("stco", struct.pack(">II", 0, 0x3FFFFFFF)),
        ("stsc", struct.pack(">II", 0, 0x10000000)),
        ("ctts", struct.pack(">II", 0, 0x1FFFFFFF)),
    ):
        stbl = box(b"stbl", box(name.encode(), table, 0x7FFFFFFF))
        minf = box(b"trak", box(b"mdia", box(b"minf", stbl)))
        yield f"endless-{name}.mp4", FTYP + box(b"moov", minf)
    packed = box(b"dcom", b"zlib") + box(b"cmvd", struct.pack(">I", 0x7FFFFFF0) + zeros)
    yield "packed-moov-of-2-gb.mov", FTYP + box(b"moov", box(b"cmov", packed))
    packed = box(b"dcom", b"zlib") + box(b"cmvd", struct.pack(">I", 1 << 28) + zeros)
    yield "packed-moov-of-256-mb.mov", FTYP + box(b"moov", box(b"cmov", packed))
    yield "header-twice.mp4", FTYP + moov + moov + FTYP
    reference = box(b"rdrf", struct.pack(">I4sI", 0, b"url ", 28) + b"file:///etc/passwd#.........")
    yield "movie-elsewhere.mov", FTYP + box(b"moov", box(b"rmra", box(b"rmda", reference)))

    yield "segment-of-2-to-55.mkv", matroska(track(), length=(1 << 55))
    nested = b""
    for _ in range(3_000):
        nested = element(0x18538067, nested)
    yield "3000-segments-deep.mkv", matroska(nested)
    private = element(0x63A2, b"x" * 64, 1 << 40)
    yield "private-data-of-1-tb.mkv", matroska(track(private))
    yield "packed-block-of-256-mb.mkv", matroska(packed_track(), cluster(zeros))
    yield "attachment-of-4-gb.mkv", matroska(track(), element(0x1941A469, b"x", 1 << 32))
    many = b"".join(element(0xBB, element(0xB3, struct.pack(">Q", n))) for n in range(30_000))
    yield "30000-cues.mkv", matroska(track(), element(0x1C53BB6B, many))
    for width, height in ((1 << 31, 1 << 31), (65_536, 65_536), (0, 0), (1, 1 << 30)):
        wide = track(width=width & 0xFFFFFFFF, height=height & 0xFFFFFFFF)
        yield f"{width}x{height}.mkv", matroska(wide, cluster(b"\x10\2\0\x9d\x01\x2a\xff\x3f" * 8))
    key = b"\x10\2\0\x9d\x01\x2a" + struct.pack("<HH", 16_383, 16_383) + bytes(200)
    yield "16383x16383.webm", matroska(track(), cluster(key))

    header = struct.pack("<14I", 1, 0, 0, 0x10, 1, 0, 1, 0, 0xFFFFFFF, 0xFFFFFFF, 0, 0, 0, 0)
    for codec, size in ((b"RGB ", (60_000, 60_000)), (b"MJPG", (65_500, 65_500))):
        strh = b"vids" + codec + struct.pack("<10I", 0, 0, 0, 1, 25, 0, 1, 0, 0, 0) + bytes(8)
        strf = struct.pack("<IiiHH4sIiiII", 40, *size, 1, 24, codec, 0, 0, 0, 0, 0)
        strl = b"LIST" + struct.pack("<I", 4 + 16 + len(strh) + len(strf)) + b"strl"
        strl += b"strh" + struct.pack("<I", len(strh)) + strh
        strl += b"strf" + struct.pack("<I", len(strf)) + strf
        hdrl = b"hdrlavih" + struct.pack("<I", len(header)) + header + strl
        start = b"LIST" + struct.pack("<I", len(hdrl)) + hdrl
        jpeg = b"\xff\xd8\xff\xc0\0\x11\x08\xff\xdc\xff\xdc\3\1\x22\0\2\x11\1\3\x11\1" + bytes(64)
        movi = b"movi00dc" + struct.pack("<I", len(jpeg)) + jpeg
        body = b"AVI " + start + b"LIST" + struct.pack("<I", len(movi)) + movi
        name = codec.decode().strip().lower()
        yield f"{size[0]}x{size[1]}-{name}.avi", b"RIFF" + struct.pack("<I", len(body)) + body
    script = b"\2\0\x0aonMetaData\x08\xff\xff\xff\xff" + b"\0\1a\0" * 4_000
    tag = b"\x12" + len(script).to_bytes(3, "big") + bytes(7) + script
    yield "metadata-of-4-billion.flv", b"FLV\1\1\0\0\0\x09\0\0\0\0" + tag
    guid = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
    yield "header-of-2-to-62.wmv", guid + struct.pack("<QIH", 1 << 62, 0xFFFFFFFF, 513) + bytes(99)
    page = b"OggS\0\2" + bytes(8) + b"\1\0\0\0" + bytes(8) + b"\xff" + b"\xff" * 255
    yield "endless-lacing.ogv", page * 400
    packet = b"\x47\x40\0\x10\0\0\xb0\xff" + bytes(range(180))
    yield "10000-programs.ts", packet * 5_000
    yield "sequence-4095x4095.mpg", b"\0\0\1\xba" + bytes(10) + b"\0\0\1\xb3\xff\xff\xff\x13" * 300
