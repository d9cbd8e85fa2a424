"""Files made to break a video pipeline, the same ones for the same seed.

In: an empty folder and a seed. Out: `HostileFile`s, each with the outcomes it may have.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import socket
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from tests.hostile.boxes import black_picture, lying_headers
from tests.hostile.films import replay, rewrap, write_film, write_films

READY = "ready"
# Every reason by which a file may be refused for what it holds or is.
REASONS = frozenset(
    {
        *("missing", "is_directory", "unreadable", "empty", "not_video", "no_video_stream"),
        *("truncated", "no_frames", "too_slow", "too_large", "decoder_died"),
        "outside_media_roots",
    }
)
ANYTHING = REASONS | {READY}


@dataclass(frozen=True)
class HostileFile:
    """A file, what was done to it, and the outcomes that are right for it."""

    path: Path
    family: str
    outcomes: frozenset[str] = ANYTHING


def build_corpus(folder: Path, seed: int = 0, port: int = 9) -> list[HostileFile]:
    """Every file, in a stable order; `port` is where the playlists' addresses lead."""
    rng = random.Random(seed)
    films = write_films(folder / "honest")
    return [
        *_truncated(folder, films),
        *_damaged(folder, films, rng),
        *_misnamed(folder, films),
        *_foreign(folder, rng),
        *_playlists(folder, port),
        *_clocks(folder, folder / "honest"),
        *_headers(folder),
        *_file_system(folder, films),
    ]


def write(folder: Path, family: str, name: str, content: bytes) -> Path:
    path = folder / family / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def only(*outcomes: str) -> frozenset[str]:
    return frozenset(outcomes)


def _truncated(folder: Path, films: dict[str, bytes]) -> Iterator[HostileFile]:
    """What lacks half must not pass for whole where the container tells its length."""
    for suffix, film in films.items():
        for share in (0.001, 0.004, 0.02, 0.1, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.97):
            cut = film[: max(1, int(len(film) * share))]
            path = write(folder, "truncated", f"{share}.{suffix}", cut)
            is_told = suffix in ("mp4", "mov", "mkv", "avi") and 0.3 <= share <= 0.8
            yield HostileFile(path, "truncated", only("truncated") if is_told else ANYTHING)


def _damaged(folder: Path, films: dict[str, bytes], rng: random.Random) -> Iterator[HostileFile]:
    for suffix, film in films.items():
        for place, count in (("head", 4), ("head", 40), ("all", 30), ("all", 1000), ("tail", 40)):
            spoilt = bytearray(film)
            window = {"head": (0, 600), "all": (0, len(film)), "tail": (len(film) - 600, len(film))}
            for _ in range(count):
                at = rng.randrange(*window[place])
                spoilt[at] ^= 1 << rng.randrange(8)
            name = f"{count}-flips-{place}.{suffix}"
            yield HostileFile(write(folder, "flipped", name, bytes(spoilt)), "flipped")
        third = len(film) // 3
        noise = rng.randbytes(third)
        blocks = [film[n : n + 512] for n in range(0, len(film), 512)]
        rng.shuffle(blocks)
        for name, content in (
            ("hole", film[:third] + bytes(third) + film[2 * third :]),
            ("noise-inside", film[:third] + noise + film[2 * third :]),
            ("noise-before", noise + film),
            ("twice", film + film),
            ("shuffled", b"".join(blocks)),
        ):
            yield HostileFile(write(folder, "spliced", f"{name}.{suffix}", content), "spliced")


def _misnamed(folder: Path, films: dict[str, bytes]) -> Iterator[HostileFile]:
    """A name is no evidence: the content decides, and this content is honest."""
    suffixes = list(films)
    for number, suffix in enumerate(suffixes):
        other = suffixes[(number + 3) % len(suffixes)]
        path = write(folder, "misnamed", f"{suffix}.{other}", films[suffix])
        yield HostileFile(path, "misnamed", only(READY))


def _foreign(folder: Path, rng: random.Random) -> Iterator[HostileFile]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("film.mp4", bytes(10_000_000))
    xml = (
        b'<?xml version="1.0"?><!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg>&x;</svg>'
    )
    for name, content in {
        "nothing.mp4": b"",
        "nothing.mkv": b"",
        "nothing.avi": b"",
        "one-byte.mp4": b"\0",
        "magic-only.avi": b"RIFF",
        "magic-only.mkv": b"\x1a\x45\xdf\xa3",
        "magic-only.mp4": b"\0\0\0\x08ftyp",
        "magic-only.ogv": b"OggS",
        "magic-only.flv": b"FLV\1",
        "noise-1.mp4": rng.randbytes(100_000),
        "noise-2.mkv": rng.randbytes(1_000),
        "zeros.mp4": bytes(200_000),
        "ones.ts": b"\xff" * 200_000,
        "sync-bytes.ts": b"\x47" * 200_000,
        "text.mp4": b"a film about text\n" * 1000,
        "page.mp4": b"<html><script>alert(1)</script></html>",
        "data.mp4": b'{"path": "/etc/passwd"}',
        "archive.mp4": archive.getvalue(),
        "bomb.mp4": gzip.compress(bytes(50_000_000), 1),
        "picture.mp4": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\x7f\xff\xff\xff" * 2 + bytes(50),
        "entity.mp4": xml,
        "program.mp4": b"\x7fELF" + bytes(1000),
        "script.mp4": b"#!/bin/sh\ntouch /tmp/hostile\n",
        "bytecode.mp4": b"\x80\x04cos\nsystem\n(S'touch /tmp/hostile'\ntR.",
        "subtitles.mp4": b"1\n00:00:00,000 --> 99:00:00,000\n{\\an8}<font>x\n",
    }.items():
        # MPEG's elementary streams have no magic: noise may hold a start code and no picture.
        expected = only("empty") if not content else REASONS
        yield HostileFile(write(folder, "foreign", name, content), "foreign", expected)


def _playlists(folder: Path, port: int) -> Iterator[HostileFile]:
    """Each points to an honest film, a secret or an address; to follow it is to fail."""
    film = folder / "honest" / "film.mp4"
    address = f"http://127.0.0.1:{port}/film.mp4"
    hls = "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{}\n#EXT-X-ENDLIST\n"
    mpd = (
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT3S"><Period><AdaptationSet mimeType="video/mp4">'
        '<Representation id="1" bandwidth="1"><BaseURL>{}</BaseURL></Representation>'
        "</AdaptationSet></Period></MPD>"
    )
    for name, content in {
        "hls-file": hls.format(film),
        "hls-file-url": hls.format(f"file://{film}"),
        "hls-address": hls.format(address),
        "hls-crypto": hls.format(f"crypto:{film}"),
        "hls-data": hls.format("data:video/mp4;base64,AAAAHGZ0eXA="),
        "hls-subfile": hls.format(f"subfile,,start,0,end,0,,:{film}"),
        "hls-key": f'#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI="{address}"\n#EXTINF:3,\n{film}\n',
        "hls-master": f"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{address}\n",
        "concat-file": f"ffconcat version 1.0\nfile '{film}'\n",
        "concat-address": f"ffconcat version 1.0\nfile '{address}'\n",
        "concat-secret": "ffconcat version 1.0\nfile /etc/passwd\n",
        "concat-line": f"concat:{film}|{film}",
        "dash-file": mpd.format(film),
        "dash-address": mpd.format(address),
        "sdp": f"v=0\no=- 0 0 IN IP4 0\ns=x\nc=IN IP4 127.0.0.1\nm=video {port} RTP/AVP 96\n",
        "pls": f"[playlist]\nFile1={address}\nNumberOfEntries=1\n",
        "asx": f'<asx version="3.0"><entry><ref href="{address}"/></entry></asx>',
        "ffmetadata": ";FFMETADATA1\ntitle=x\n",
        "avisynth": f'FFVideoSource("{film}")\n',
        "vobsub": "# VobSub index file, v7 (do not modify this line!)\nid: en, index: 0\n",
        "smooth": '<SmoothStreamingMedia MajorVersion="2" Duration="30000000"/>',
        "lavfi": "movie=/etc/passwd",
    }.items():
        for suffix in ("mp4", "m3u8") if name.startswith("hls") else ("mp4",):
            path = write(folder, "playlists", f"{name}.{suffix}", content.encode())
            yield HostileFile(path, "playlists", only("not_video"))
    # An honest film under a name that FFmpeg would read as a pattern or an address.
    for name in ("%03d.mp4", "concat:a|b.mp4", "fd:0.mp4", "http:film.mp4", "-i.mp4"):
        path = write(folder, "names", name, film.read_bytes())
        yield HostileFile(path, "names", only(READY))
    # A film whose samples lie in another file, by QuickTime's data references.
    elsewhere = film.read_bytes().replace(b"url \0\0\0\1", b"url \0\0\0\0")
    path = write(folder, "playlists", "samples-elsewhere.mov", elsewhere)
    yield HostileFile(path, "playlists", ANYTHING)


def _clocks(folder: Path, honest: Path) -> Iterator[HostileFile]:
    """Films whose clocks are absurd; their pictures are honest, so most are readable."""
    (folder / "clocks").mkdir()
    million, milli = Fraction(1, 10**6), Fraction(1, 1000)
    source = honest / "film.mp4"
    for name, stamps, tick in (
        ("million-fps.mp4", list(range(24)), million),
        ("million-fps.mkv", list(range(24)), million),
        ("million-fps.mov", list(range(24)), million),
        ("ten-hour-still.mkv", [0, 36_000_000], milli),
        ("ten-hour-still.mp4", [0, 36_000_000], milli),
        ("ten-hour-still.ts", [0, 36_000_000], milli),
        ("ten-hour-still.flv", [0, 2_000_000_000], milli),
        ("million-hours.mkv", [0, 3_600_000_000_000], milli),
        ("last-tick.mkv", [0, (1 << 62) // 10**6], milli),
        ("before-zero.mkv", [-5000, 0, 5000], milli),
        ("all-at-once.mkv", [0] * 24, milli),
        ("ever-later.mkv", [n * n * n * 1000 for n in range(24)], milli),
        ("year-gaps.mp4", [n * 2_000_000_000 for n in range(24)], milli),
    ):
        path = replay(source, folder / "clocks" / name, stamps, tick)
        yield HostileFile(path, "clocks", ANYTHING)
    many = write_film(
        folder / "clocks" / "two-thousand-in-a-moment.mkv",
        "libx264",
        stamps=list(range(2_000)),
        tick=milli,
        size=(16, 16),
    )
    yield HostileFile(many, "clocks", only(READY))
    content = bytearray((honest / "film.mp4").read_bytes())
    at = content.index(b"mdhd") + 4 + 12
    for name, scale in (("no-timescale", 0), ("huge-timescale", 0xFFFFFFFF), ("one-tick", 1)):
        content[at : at + 4] = struct.pack(">I", scale)
        yield HostileFile(write(folder, "clocks", f"{name}.mp4", bytes(content)), "clocks")


def _headers(folder: Path) -> Iterator[HostileFile]:
    for name, content in lying_headers():
        yield HostileFile(write(folder, "headers", name, content), "headers", REASONS)
    small = write_film(folder / "honest" / "png.mov", "png", stamps=[0], pixels="rgb24")
    for width, height in ((30_000, 30_000), (7_900, 8_000), (1, 60_000_000)):
        path = folder / "headers" / f"picture-of-{width}x{height}.mov"
        rewrap(small, path, black_picture(width, height))
        # The second is large and allowed: it must be read within the memory there is.
        expected = only(READY) if width == 7_900 else REASONS
        yield HostileFile(path, "headers", expected)
    for number, film in enumerate(("mp4", "mov")):
        content = bytearray((folder / "honest" / f"film.{film}").read_bytes())
        for kind in (b"tkhd", b"avc1", b"jpeg"):
            at = content.find(kind)
            if at > 0:
                place = at + 4 + (76 if kind == b"tkhd" else 24)
                content[place : place + 8] = b"\xff\xff\0\0\xff\xff\0\0"
        path = write(folder, "headers", f"65535x65535-{number}.{film}", bytes(content))
        yield HostileFile(path, "headers")


def _file_system(folder: Path, films: dict[str, bytes]) -> Iterator[HostileFile]:
    place = folder / "file-system"
    place.mkdir()

    def link(name: str, target: str | Path) -> Path:
        (place / name).symlink_to(target)
        return place / name

    (place / "folder.mp4").mkdir()
    yield HostileFile(place / "folder.mp4", "file-system", only("is_directory"))
    os.mkfifo(place / "fifo.mp4")
    yield HostileFile(place / "fifo.mp4", "file-system", only("unreadable"))
    here = Path.cwd()
    os.chdir(place)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket.mp4")
    finally:
        os.chdir(here)
    yield HostileFile(place / "socket.mp4", "file-system", only("unreadable"))
    for name, target, outcome in (
        ("zero.mp4", "/dev/zero", "unreadable"),
        ("null.mp4", "/dev/null", "unreadable"),
        ("tty.mp4", "/dev/tty", "unreadable"),
        ("loop.mp4", "loop.mp4", "unreadable"),
        ("dangling.mp4", "nowhere.mp4", "missing"),
        ("out-of-the-root.mp4", "/etc/passwd", "outside_media_roots"),
        ("up-and-out.mp4", "../" * 20 + "etc/passwd", "outside_media_roots"),
        ("link-to-a-folder.mp4", "/etc", "outside_media_roots"),
    ):
        outcomes = only(outcome, "outside_media_roots", "missing")
        yield HostileFile(link(name, target), "file-system", outcomes)
    film = films["mp4"]
    yield HostileFile(link("inside.mp4", "../honest/film.mp4"), "file-system", only(READY))
    sparse = place / "sparse-terabyte.mp4"
    with sparse.open("wb") as file:
        file.write(film)
        file.truncate(1 << 40)
    yield HostileFile(sparse, "file-system", ANYTHING)
    for name in ("x" * 240 + ".mp4", "new\nline.mp4", "\x1b[31mred.mp4", "\u202egp4.exe.mp4"):
        (place / name).write_bytes(film)
        yield HostileFile(place / name, "file-system", only(READY))
    undecodable = place / os.fsdecode(b"\xff\xfe.mp4")
    undecodable.write_bytes(film)
    yield HostileFile(undecodable, "file-system", only(READY))
    yield HostileFile(place / "nul\0.mp4", "file-system", only("outside_media_roots"))
    yield HostileFile(place / ("y" * 300), "file-system", only("unreadable"))
    yield HostileFile(place / "absent" / "film.mp4", "file-system", only("missing"))
