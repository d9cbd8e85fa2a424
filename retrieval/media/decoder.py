"""The decoder child: one video file in, sampled RGB frames out on a pipe, then the process ends.

In: one JSON request as the only argument, the open file as stdin. Out: messages on stdout (see
`child`, which starts it). A hostile file can crash, hang or bloat this process and nothing else:
before its first byte is looked at, the process gives up all else (see `confinement`). It imports
neither numpy nor the package, so it starts in a tenth of a second.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import av
import av.codec.hwaccel

# PyAV imports these when it meets such a track; by then nothing can be imported any more.
import av.subtitles.codeccontext
import av.subtitles.stream
from av.video.reformatter import VideoReformatter


def _sibling(name: str) -> ModuleType:
    """A module beside this one, found by its file: the package is not on this process's path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from retrieval.media import clock, completeness, confinement, sampler
else:
    clock, completeness, confinement, sampler = map(
        _sibling, ("clock", "completeness", "confinement", "sampler")
    )

VIDEO = 0  # the file, open as stdin
# One for all frames, since it keeps its tables from frame to frame.
REFORMATTER = VideoReformatter()
# Demuxers a file may use. Playlists, image sequences, capture devices and concatenations are left
# out on purpose: they open other files or addresses. The audio formats are here only so that such
# a file is called "no video stream" and not "not a video".
FORMATS = "mov,mp4,matroska,webm,avi,mpeg,mpegts,mpegvideo,m4v,ogg,flv,asf,mp3,wav,flac,aac"
# Decoders a video track may use: what people upload and what studios keep. FFmpeg has two hundred
# more, of games and cameras long gone; they are where its bugs are.
CODECS = (
    "h264,hevc,vvc,av1,libdav1d,vp8,vp9,libvpx,libvpx-vp9,vp6,vp6a,vp6f,theora,mpeg1video,"
    "mpeg2video,mpegvideo,mpeg4,msmpeg4v1,msmpeg4v2,msmpeg4,wmv1,wmv2,wmv3,vc1,h261,h263,h263p,"
    "h263i,flv,mjpeg,prores,dnxhd,dvvideo,cfhd,ffv1,huffyuv,ffvhuff,utvideo,rawvideo,v210,qtrle,"
    "cinepak,svq1,svq3,indeo3,indeo4,indeo5,msvideo1,msrle,rpza,jpeg2000,png"
)
MAX_PIXELS = 64_000_000  # 8K is 33 million; above this a file is an attack or a mistake


class Unusable(Exception):
    """The file cannot become frames; `code` is one of BadVideo's."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def main() -> None:
    request = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing a library prints may slip between the messages
    try:
        with contextlib.suppress(BrokenPipeError):  # the reader closed early: its right
            _serve(request, out)
    except Unusable as error:
        _refuse(out, error.code, str(error))
    except sampler.TooManyBadPackets as error:
        _refuse(out, "no_frames", str(error))
    except (av.error.MemoryError, MemoryError):
        _refuse(out, "too_large", "decoding it needs more memory than a decoder may use")
    # Libraries' exit handlers have nothing left to do here and have been seen to hang.
    os._exit(0)


def _serve(request: dict[str, Any], out: BinaryIO) -> None:
    missing = _confine(request)
    if missing and request["must_confine"]:
        raise Unusable("unconfined", f"this system lacks {', '.join(missing)}")
    with _open(request["hardware"]) as container:
        stream = _choose_stream(container)
        times = clock.Clock(container, stream)
        facts = {**_describe(container, stream, times), "unconfined": missing}
        _send(out, b"I", json.dumps(facts).encode())
        if request["fps"] is None:
            return
        count = 0
        shown: Any = None
        samples = sampler.Sampler(
            container,
            stream,
            times,
            request["fps"],
            request["threads"],
            request["size"],
            request["moments"],
        )
        for due, frame in samples:
            if frame is shown:  # a still of ten hours crosses the pipe once
                _send(out, b"R", struct.pack("<d", due))
            else:
                _send_frame(out, due, frame, request["size"])
                shown = frame
            count += 1
            if count >= request["max_frames"]:
                return
        _refuse_cut_file(count, samples.shown_until, times.declared_seconds)
        if count == 0:
            raise Unusable("no_frames", "no frame of it can be decoded")
        _send(out, b"D", json.dumps({"seconds": samples.shown_until}).encode())


def _confine(request: dict[str, Any]) -> list[str]:
    """Before the file is looked at; the nets that are missing."""
    seconds = request["cpu_seconds"]
    if request["hardware"]:  # its driver opens devices and libraries as it goes
        missing = confinement.limit_resources(None, seconds)
        return [*missing, confinement.PATHS, confinement.CALLS]
    has_threads = request["threads"] != 1
    return confinement.confine_process(request["memory_bytes"], seconds, has_threads=has_threads)


def _refuse_cut_file(count: int, shown: float, declared: float | None) -> None:
    """A file whose end is missing is refused, unless what is missing is a trifle."""
    missing = completeness.missing_bytes(VIDEO)
    if missing == 0:
        return
    is_short = declared is not None and declared - shown > max(2.0, 0.05 * declared)
    is_cut = missing > 0.05 * (missing + os.fstat(VIDEO).st_size)
    if count == 0 or is_short or is_cut:
        raise Unusable("truncated", f"the file ends early, after {shown:.1f} seconds")


def _open(hardware: str | None) -> Any:
    hwaccel = av.codec.hwaccel.HWAccel(hardware) if hardware else None  # falls back to software
    options = {
        "fd": str(VIDEO),
        "protocol_whitelist": "fd",  # nothing that has a name: no file, no address
        "format_whitelist": FORMATS,
        "codec_whitelist": CODECS,
    }
    try:
        return av.open("fd:", options=options, metadata_errors="replace", hwaccel=hwaccel)
    except (av.error.InvalidDataError, av.error.ArgumentError, av.error.DemuxerNotFoundError):
        if completeness.missing_bytes(VIDEO) > 0:
            raise Unusable("truncated", "the file ends before its index") from None
        raise Unusable("not_video", "its content is of no known video format") from None
    except av.error.MemoryError:
        raise
    except av.error.FFmpegError as error:
        raise Unusable("not_video", f"it cannot be opened: {error.strerror}") from None


def _choose_stream(container: Any) -> Any:
    """The first real video track: cover pictures of audio files are tracks, too."""
    cover = av.stream.Disposition.attached_pic
    streams = [each for each in container.streams.video if not each.disposition & cover]
    if not streams:
        raise Unusable("no_video_stream", "it holds no video track")
    stream = streams[0]
    context = stream.codec_context
    if context is None:
        raise Unusable("not_video", "its video codec is unknown here")
    if context.name not in CODECS.split(","):
        raise Unusable("not_video", f"its codec {context.name} is not decoded here")
    _refuse_giant(context.width, context.height)
    pixel_bits = context.format.padded_bits_per_pixel if context.format else 24
    confinement.make_room(context.width * context.height * pixel_bits // 8)
    context.options = {"max_pixels": str(MAX_PIXELS)}  # a picture may grow midway
    return stream


def _refuse_giant(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise Unusable("too_large", f"its pictures are {width}x{height}")


def _describe(container: Any, stream: Any, times: clock.Clock) -> dict[str, Any]:
    rate = stream.average_rate or stream.guessed_rate
    return {
        "duration": times.declared_seconds,
        "width": stream.codec_context.width,
        "height": stream.codec_context.height,
        "fps": float(rate) if rate else None,
        "codec": stream.codec_context.name,
        "container": container.format.name,
        "has_audio": bool(container.streams.audio),
    }


def _send_frame(out: BinaryIO, due: float, frame: Any, size: list[int] | None) -> None:
    """Scales first and turns later (in the parent): fewer pixels to turn."""
    _refuse_giant(frame.width, frame.height)
    rotation = int(frame.rotation) % 360
    width, height = size or (frame.width, frame.height)
    if size and rotation in (90, 270):
        width, height = height, width
    picture = REFORMATTER.reformat(
        frame, width=width, height=height, format="rgb24", interpolation="AREA", threads=1
    )
    plane = picture.planes[0]
    row, stride = width * 3, plane.line_size
    pixels = bytes(plane)
    if stride != row:
        pixels = b"".join(pixels[y * stride : y * stride + row] for y in range(height))
    _send(out, b"F", struct.pack("<dIIH", due, width, height, rotation) + pixels[: row * height])


def _refuse(out: BinaryIO, code: str, reason: str) -> None:
    _send(out, b"E", json.dumps({"code": code, "reason": reason}).encode())


def _send(out: BinaryIO, kind: bytes, body: bytes) -> None:
    message = memoryview(kind + struct.pack("<I", len(body)) + body)
    while message:
        message = message[out.write(message) :]


if __name__ == "__main__":
    main()
