"""Which frames of a video are wanted: the one on screen in the middle of each interval.

In: an open container, its video track and clock, frames a second. Out: (time, frame) in order.
The decoder loads it by its file, so it imports nothing of the project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import av

if TYPE_CHECKING:
    from retrieval.media.clock import Clock

MAX_BAD_PACKETS = 5_000
MAX_BUFFERED_PACKETS = 400
# What may be left out where frames are scaled down, and one of a moment earlier is as good: frames
# that no other is decoded from, in videos of this rate (a third of the decoding of H.264); and the
# smoothing of block edges, in pictures that are made so much smaller (an eighth of it).
SKIPPING_RATE = 20.0
SKIPPING_SCALE = 3.0
EPSILON = 1e-6  # clocks tick in fractions; a frame due exactly now is on screen


class TooManyBadPackets(Exception):
    """So much of the file cannot be decoded that the rest is not tried."""


class Sampler:
    """Iterates over (time, frame): the frame on screen in the middle of each sampling interval,
    or at each of the `moments`, which rise.

    Packets are gathered from keyframe to keyframe. A group in which no sample falls is not decoded,
    and of the others nothing after the last sample: what seeking would save, without its traps.
    Where frames are scaled to a `size`, one shown a moment earlier may stand for a sample.
    """

    def __init__(
        self,
        container: Any,
        stream: Any,
        clock: Clock,
        fps: float,
        threads: int,
        size: Sequence[int] | None,
        moments: Sequence[float] | None = None,
    ) -> None:
        self.moments = moments
        self.container, self.stream, self.clock, self.fps = container, stream, clock, fps
        self.context = stream.codec_context
        self.context.thread_type = "AUTO"
        self.context.thread_count = threads
        if size is not None and clock.rate >= max(SKIPPING_RATE, 4 * fps):
            self.context.skip_frame = "NONREF"
            if min(self.context.width, self.context.height) >= SKIPPING_SCALE * max(size):
                self.context.options = {**self.context.options, "skip_loop_filter": "all"}
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
        if self.moments is None:
            return (self.index + 0.5) / self.fps
        return self.moments[self.index] if self.index < len(self.moments) else float("inf")

    def _last_due_before(self, time: float) -> float:
        """The last sample before that time, of which there is one at least."""
        if self.moments is None:
            return self.due + int((time - self.due) * self.fps - EPSILON) / self.fps
        return max(each for each in self.moments[self.index :] if each < time)

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
        if packet.is_keyframe and self.clock.falls_back(self._latest, time):
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
        last_due = self._last_due_before(next_key)
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
            raise TooManyBadPackets(f"{self.bad_packets} parts of it cannot be decoded")

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
