"""When a frame is shown: seconds since the video began, from a container's time stamps.

In: an open container and its video track. Out: times of packets; times of frames, which never fall.
The decoder loads it by its file, so it imports nothing of the project.
"""

from __future__ import annotations

from typing import Any

# A video track may start this long after the others (audio first) and still be placed by the
# container's clock; beyond it the clock is taken for broken.
MAX_LATE_START = 60.0
# A clock that falls back by more has restarted: files were joined end to end.
MOST_FALL_BACK = 1.0


class Clock:
    """Presentation time in seconds since the video began, as a player shows it."""

    def __init__(self, container: Any, stream: Any) -> None:
        self.tick = float(stream.time_base) if stream.time_base else 0.0
        own = stream.start_time * self.tick if stream.start_time is not None else None
        whole = container.start_time / 1e6 if container.start_time is not None else own
        late = own is not None and whole is not None and own - whole > MAX_LATE_START
        self.origin: float | None = own if late else whole
        rate = stream.average_rate or stream.guessed_rate
        self.rate = float(rate) if rate else 0.0
        self.frame_seconds = 1 / self.rate if self.rate else 0.04
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

    @staticmethod
    def falls_back(last: float, time: float) -> bool:
        """Whether a clock that showed `last` and now shows `time` has restarted between them."""
        return time < last - MOST_FALL_BACK

    def _is_broken(self, time: float) -> bool:
        assert self._last is not None
        if self.falls_back(self._last, time):
            return True
        end = self.declared_seconds
        return end is not None and time > self._last + 10.0 and time > end + 1.0
