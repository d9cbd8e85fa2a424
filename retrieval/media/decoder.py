"""The decoder child: one video file in, sampled RGB frames out on a pipe, then the process ends.

In: one JSON request as the only argument, the open file as stdin. Out: messages on stdout (see
`video`, which starts it). A hostile file can crash, hang or bloat this process and nothing else:
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
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

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


completeness, confinement = _sibling("completeness"), _sibling("confinement")

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
MAX_BAD_PACKETS = 5_000
MAX_BUFFERED_PACKETS = 400
# A video track may start this long after the others (audio first) and still be placed by the
# container's clock; beyond it the clock is taken for broken.
MAX_LATE_START = 60.0
# A clock that falls back by more has restarted: files were joined end to end.
MOST_FALL_BACK = 1.0
EPSILON = 1e-6  # clocks tick in fractions; a frame due exactly now is on screen


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
        _send(out, b"E", json.dumps({"code": error.code, "reason": str(error)}).encode())
    except (av.error.MemoryError, MemoryError):
        reason = "decoding it needs more memory than a decoder may use"
        _send(out, b"E", json.dumps({"code": "too_large", "reason": reason}).encode())
    # Libraries' exit handlers have nothing left to do here and have been seen to hang.
    os._exit(0)


def _serve(request: dict[str, Any], out: BinaryIO) -> None:
    if request["hardware"]:  # its driver opens devices and libraries as it goes
        confinement.limit_resources(None, request["cpu_seconds"])
    else:
        confinement.confine_process(
            request["memory_bytes"], request["cpu_seconds"], has_threads=request["threads"] != 1
        )
    with _open(request["hardware"]) as container:
        stream = _choose_stream(container)
        clock = _Clock(container, stream)
        _send(out, b"I", json.dumps(_describe(container, stream, clock)).encode())
        if request["fps"] is None:
            return
        count = 0
        shown: Any = None
        sampler = _Sampler(container, stream, clock, request["fps"], request["threads"])
        for due, frame in sampler:
            if frame is shown:  # a still of ten hours crosses the pipe once
                _send(out, b"R", struct.pack("<d", due))
            else:
                _send_frame(out, due, frame, request["size"])
                shown = frame
            count += 1
            if count >= request["max_frames"]:
                return
        _refuse_cut_file(count, sampler.shown_until, clock.declared_seconds)
        if count == 0:
            raise Unusable("no_frames", "no frame of it can be decoded")
        _send(out, b"D", json.dumps({"seconds": sampler.shown_until}).encode())


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
    context.options = {"max_pixels": str(MAX_PIXELS)}  # a picture may grow midway
    return stream


def _refuse_giant(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise Unusable("too_large", f"its pictures are {width}x{height}")


def _describe(container: Any, stream: Any, clock: _Clock) -> dict[str, Any]:
    rate = stream.average_rate or stream.guessed_rate
    return {
        "duration": clock.declared_seconds,
        "width": stream.codec_context.width,
        "height": stream.codec_context.height,
        "fps": float(rate) if rate else None,
        "codec": stream.codec_context.name,
        "container": container.format.name,
        "has_audio": bool(container.streams.audio),
    }


class _Clock:
    """Presentation time in seconds since the video began, as a player shows it."""

    def __init__(self, container: Any, stream: Any) -> None:
        self.tick = float(stream.time_base) if stream.time_base else 0.0
        own = stream.start_time * self.tick if stream.start_time is not None else None
        whole = container.start_time / 1e6 if container.start_time is not None else own
        late = own is not None and whole is not None and own - whole > MAX_LATE_START
        self.origin: float | None = own if late else whole
        rate = stream.average_rate or stream.guessed_rate
        self.frame_seconds = float(1 / rate) if rate else 0.04
        self.declared_seconds: float | None = None
        if stream.duration:
            start = own - self.origin if own is not None and self.origin is not None else 0.0
            self.declared_seconds = start + stream.duration * self.tick
        elif container.duration:
            self.declared_seconds = container.duration / 1e6
        self._last: float | None = None
        self._shift = 0.0

    def packet_time(self, packet: Any) -> float | None:
        if packet.pts is None or self.origin is None:
            return None
        return packet.pts * self.tick - self.origin + self._shift

    def frame_time(self, frame: Any) -> float:
        """Never runs backwards: clocks that restart or leap inside a file are stitched."""
        stamp = frame.pts if frame.pts is not None else frame.dts
        if stamp is None:
            time = 0.0 if self._last is None else self._last + self.frame_seconds
        else:
            raw = stamp * self.tick
            if self.origin is None:
                self.origin = raw
            time = raw - self.origin + self._shift
            if self._last is not None and self._is_broken(time):
                self._shift += self._last + self.frame_seconds - time
                time = self._last + self.frame_seconds
        self._last = time
        return time

    def _is_broken(self, time: float) -> bool:
        assert self._last is not None
        if time < self._last - MOST_FALL_BACK:
            return True
        end = self.declared_seconds
        return end is not None and time > self._last + 10.0 and time > end + 1.0


class _Sampler:
    """Iterates over (time, frame): the frame on screen in the middle of each sampling interval.

    Packets are gathered from keyframe to keyframe. A group in which no sample falls is not decoded,
    and of the others nothing after the last sample: what seeking would save, without its traps.
    """

    def __init__(
        self, container: Any, stream: Any, clock: _Clock, fps: float, threads: int
    ) -> None:
        self.container, self.stream, self.clock, self.fps = container, stream, clock, fps
        self.context = stream.codec_context
        self.context.thread_type = "AUTO"
        self.context.thread_count = threads
        self.shown_until = 0.0
        self.index = 0
        self.can_skip = True
        self.bad_packets = 0
        self._held: tuple[float, Any] | None = None
        self._latest = float("-inf")
        self._floor = float("-inf")
        self._restarted = True

    @property
    def due(self) -> float:
        return (self.index + 0.5) / self.fps

    def __iter__(self) -> Iterator[tuple[float, Any]]:
        for group, next_key in self._groups():
            yield from self._decode_group(group, next_key)
        yield from self._take(self._decode(None))
        if self._held is not None:
            time, frame = self._held
            length = frame.duration * self.clock.tick if frame.duration else 0.0
            self.shown_until = time + (length or self.clock.frame_seconds)
            # A video shorter than half an interval still shows something.
            while self.due < self.shown_until or self.index == 0:
                yield self._emit(frame)

    def _groups(self) -> Iterator[tuple[list[Any], float | None]]:
        """Packets from one keyframe up to the next, and when that next one is shown.

        A group that grows too long is handed out in parts with no next time: parts are decoded.
        """
        group: list[Any] = []
        for packet in self._packets():
            self._watch_clock(packet)
            if packet.is_keyframe and group:
                yield group, self.clock.packet_time(packet)
                group = []
            group.append(packet)
            if len(group) >= MAX_BUFFERED_PACKETS or not self.can_skip:
                yield group, None
                group = []
        if group:
            yield group, None

    def _watch_clock(self, packet: Any) -> None:
        """Skip nothing from a restarted clock on: what it stamps as past is still to come.

        Where the new time belongs is known only once every frame before it is decoded.
        """
        time = self.clock.packet_time(packet)
        if time is None:
            return
        if packet.is_keyframe and time < self._latest - MOST_FALL_BACK:
            self.can_skip = False
        self._latest = max(self._latest, time)

    def _packets(self) -> Iterator[Any]:
        packets = self.container.demux(self.stream)
        while True:
            try:
                packet = next(packets)
            except (StopIteration, av.error.EOFError):
                return
            except av.error.InvalidDataError:
                self._count_bad_packet()
                continue
            except av.error.OSError:
                return
            if packet.size:
                yield packet

    def _decode_group(
        self, group: list[Any], next_key: float | None
    ) -> Iterator[tuple[float, Any]]:
        needed = len(group)
        starts_at_key = group[0].is_keyframe
        if next_key is not None and self.can_skip and starts_at_key:
            needed = self._needed_packets(group, next_key)
        # Draining costs the decoder its parallelism: worth it only for a real saving.
        if needed > 0.8 * len(group):
            for packet in group:
                yield from self._take(self._decode(packet))
            return
        for packet in group[:needed]:
            yield from self._take(self._decode(packet))
        yield from self._take(self._decode(None))
        self.context.flush_buffers()
        self._restarted = True
        # Pictures that lean on the skipped ones are broken: wait for the next keyframe's time.
        self._floor = next_key if next_key is not None else self._floor

    def _needed_packets(self, group: list[Any], next_key: float) -> int:
        """How many packets, in decoding order, hold every frame that a sample may want."""
        times = [self.clock.packet_time(packet) for packet in group]
        if any(time is None for time in times) or self.clock.origin is None:
            self.can_skip = False
            return len(group)
        if next_key <= self.due:
            return 0
        last_due = self.due + int((next_key - self.due) * self.fps - EPSILON) / self.fps
        wanted = [(time, place) for place, time in enumerate(times) if time <= last_due + EPSILON]  # type: ignore[operator]
        return max(wanted)[1] + 1 if wanted else len(group)

    def _decode(self, packet: Any) -> list[Any]:
        try:
            frames: list[Any] = self.context.decode(packet)
        except av.error.MemoryError:
            raise
        except av.error.FFmpegError:
            self._count_bad_packet()
            return []
        return frames

    def _count_bad_packet(self) -> None:
        self.bad_packets += 1
        if self.bad_packets > MAX_BAD_PACKETS:
            raise Unusable("no_frames", f"{self.bad_packets} parts of it cannot be decoded")

    def _take(self, frames: list[Any]) -> Iterator[tuple[float, Any]]:
        for frame in frames:
            time = self.clock.frame_time(frame)
            if self._restarted and not frame.key_frame:
                # The container calls packets keyframes that are none: trust it no longer.
                self.can_skip = False
            self._restarted = False
            if time < self._floor - EPSILON:
                continue
            self._floor = float("-inf")
            # The first frame also stands for the time before it.
            shown = self._held[1] if self._held is not None else frame
            while self.due < time - EPSILON:
                yield self._emit(shown)
            self._held = (time, frame)
            self.shown_until = time

    def _emit(self, frame: Any) -> tuple[float, Any]:
        due = self.due
        self.index += 1
        return due, frame


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


def _send(out: BinaryIO, kind: bytes, body: bytes) -> None:
    message = memoryview(kind + struct.pack("<I", len(body)) + body)
    while message:
        message = message[out.write(message) :]


if __name__ == "__main__":
    main()
