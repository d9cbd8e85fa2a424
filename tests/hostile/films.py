"""Small honest films in ten containers: the raw material of hostile ones.

In: a folder. Out: one film a container, three seconds long.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

SECONDS, FPS, SIZE = 3, 8, (64, 48)
CODECS = {
    "mp4": "libx264",
    "mov": "mjpeg",
    "mkv": "libx264",
    "webm": "libvpx",
    "avi": "mpeg4",
    "mpg": "mpeg2video",
    "ts": "libx264",
    "flv": "flv",
    "ogv": "libvpx",
    "wmv": "wmv2",
}
FORMATS = {"ts": "mpegts", "ogv": "ogg", "wmv": "asf"}


def write_films(folder: Path) -> dict[str, bytes]:
    """Every container's film, by its suffix."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        suffix: write_film(folder / f"film.{suffix}", codec, FORMATS.get(suffix)).read_bytes()
        for suffix, codec in CODECS.items()
    }


def write_film(
    path: Path,
    codec: str,
    container: str | None = None,
    stamps: list[int] | None = None,
    tick: Fraction = Fraction(1, 1000),
    size: tuple[int, int] = SIZE,
    pixels: str | None = None,
) -> Path:
    """A film of noise whose frames are shown at `stamps`, counted in ticks."""
    rng = np.random.default_rng(0)
    if stamps is None:
        stamps = [n * 1000 // FPS for n in range(SECONDS * FPS)]
    with av.open(str(path), "w", format=container) as target:
        is_mpeg = codec in ("mpeg2video", "flv", "wmv2")  # their clocks are a list of rates
        stream: Any = target.add_stream(codec, rate=25 if is_mpeg else FPS)
        stream.width, stream.height = size
        stream.pix_fmt = pixels or ("yuvj420p" if codec == "mjpeg" else "yuv420p")
        if not is_mpeg:
            stream.codec_context.time_base = tick
        stream.options = {"bf": "0"} if codec == "libx264" else {}
        for number, stamp in enumerate(stamps):
            picture = rng.integers(0, 255, (size[1], size[0], 3), np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = number if is_mpeg else stamp
            frame.time_base = Fraction(1, 25) if is_mpeg else tick
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    return path


def replay(source: Path, target: Path, stamps: list[int], tick: Fraction) -> Path:
    """The packets of `source` again, shown at other times: cheap to make, whatever they claim."""
    with av.open(str(source)) as reader, av.open(str(target), "w") as writer:
        stream: Any = writer.add_stream_from_template(reader.streams.video[0])
        stream.time_base = tick
        packets = [packet for packet in reader.demux(video=0) if packet.size]
        for packet, stamp in zip(packets, stamps, strict=False):
            packet.pts = packet.dts = stamp
            packet.time_base = tick
            packet.stream = stream
            writer.mux(packet)
    return target


def rewrap(source: Path, target: Path, payload: bytes) -> Path:
    """One packet of other content in the film's container: the header knows nothing of it."""
    with av.open(str(source)) as reader, av.open(str(target), "w") as writer:
        stream: Any = writer.add_stream_from_template(reader.streams.video[0])
        packet = av.Packet(payload)
        packet.pts, packet.dts, packet.duration = 0, 0, 1000
        packet.time_base = Fraction(1, 1000)
        packet.is_keyframe = True
        packet.stream = stream
        writer.mux(packet)
    return target
