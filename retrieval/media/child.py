"""The decoder child seen from outside: started on an open file, heard with limited patience.

In: an open file and a request. Out: the messages that `decoder` sends, or `BadVideo` with a remedy.
`video` makes frames of the messages. A hostile file may have taken the child over, so whatever it
says is checked like the file itself.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import time
from io import BufferedReader
from pathlib import Path
from typing import Any

from retrieval.errors import BadVideo, RetrievalError, ServiceUnavailable

DECODER = Path(__file__).with_name("decoder.py")
CONFINEMENT = Path(__file__).with_name("confinement.py")
PIPE_BYTES = 1 << 20
MAX_MESSAGE = 1 << 28  # the largest picture a decoder sends is 192 MB
# The child parses hostile bytes, so it sees nothing of the environment that it does not need.
DECODER_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT")

_REMEDIES = {
    "not_video": "give a video file (mp4, mov, mkv, webm, avi, mpg, ts, ogv, flv, wmv)",
    "no_video_stream": "give a file with pictures",
    "truncated": "copy or upload it again",
    "no_frames": "check that it plays, or encode it again",
    "too_slow": "raise VCL_DECODE_TIMEOUT or encode it smaller",
    "too_large": "encode it smaller",
    "decoder_died": "encode it again; the file may be damaged on purpose",
}


class DecoderChild:
    """One process for one file. `patience` is how many seconds of waiting for it are left."""

    def __init__(
        self, path: Path, file: BufferedReader, request: dict[str, Any], timeout: float
    ) -> None:
        self.patience = timeout
        self._timeout = timeout
        self._path = path
        self._buffer = bytearray()
        self._closed = False
        self._process = _start(request, file)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Ends the child whatever it does; harmless when it is gone."""
        if self._closed:
            return
        self._closed = True
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def read_message(self) -> tuple[bytes, bytes] | None:
        """The next message, or None at the end; an error message is raised."""
        head = self._read_exactly(5)
        if head is None:
            status = self._await_end()
            if status != 0:
                raise self._explain_end(status)
            return None
        kind, (length,) = head[:1], struct.unpack("<I", head[1:])
        if length > MAX_MESSAGE:
            raise self.end_babble()
        body = self._read_exactly(length)
        if body is None:
            raise self._explain_end(self._await_end())
        if kind == b"E":
            try:
                answer = json.loads(body)
                raise self.make_error(answer["code"], str(answer["reason"]))
            except (ValueError, TypeError, KeyError):
                raise self.end_babble() from None
        return kind, body

    def make_error(self, code: str, reason: str) -> RetrievalError:
        if code == "unconfined":  # no fault of the video: it waits for a system that can
            return ServiceUnavailable(
                f"{self._path} is not decoded unconfined: {reason}; use a kernel that has it, or "
                "set VCL_REQUIRE_CONFINEMENT to no",
                code="unconfined",
            )
        return BadVideo(f"{self._path} is not usable: {reason}; {_REMEDIES[code]}", code=code)

    def end_babble(self) -> RetrievalError:
        """End a child that no longer talks as a decoder does; what to raise then."""
        self.close()
        return self.make_error("decoder_died", "the decoder sent what no decoder sends")

    def _await_end(self) -> int:
        """The status of a child that closed its pipe; one that lives on is ended."""
        try:
            return self._process.wait(timeout=max(0.1, self.patience))
        except subprocess.TimeoutExpired:
            self.close()
            return self._process.returncode

    def _explain_end(self, status: int) -> RetrievalError:
        if status == -signal.SIGXCPU:
            return self.make_error("too_slow", "decoding took more processor time than it may")
        cause = f"signal {-status}" if status < 0 else f"status {status}"
        return self.make_error("decoder_died", f"the decoder ended with {cause}")

    def _read_exactly(self, count: int) -> bytes | None:
        """`count` bytes, or None when the child closed the pipe before the first of them."""
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while len(self._buffer) < count:
                asked = time.monotonic()
                ready = selector.select(max(0.0, self.patience))
                self.patience -= time.monotonic() - asked
                if not ready:
                    self.close()
                    raise self.make_error(
                        "too_slow", f"decoding took over {self._timeout:g} seconds"
                    )
                part = os.read(source, PIPE_BYTES)
                if not part:
                    return None
                self._buffer += part
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def missing_nets() -> str:
    """What keeps a decoder of this system from being confined; empty: nothing. For the doctor."""
    command = [sys.executable, "-P", str(CONFINEMENT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else f"all ({done.stderr.strip()[-200:]})"


def _start(request: dict[str, Any], file: BufferedReader) -> subprocess.Popen[bytes]:
    # A fresh process, not a fork: this one may hold torch or faiss, whose locks do not survive it.
    # -P keeps the folder of decoder.py out of the child's module path.
    child = subprocess.Popen(
        [sys.executable, "-P", str(DECODER), json.dumps(request)],
        stdin=file,  # open already: the child needs no path, and no swap of a link reaches it
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in DECODER_ENVIRONMENT if name in os.environ},
        start_new_session=True,
        bufsize=0,
    )
    _widen_pipe(child)
    return child


def _widen_pipe(child: subprocess.Popen[bytes]) -> None:
    """Room for several frames, so that decoding runs on while we describe; Linux only."""
    try:
        import fcntl

        assert child.stdout is not None
        fcntl.fcntl(child.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (ImportError, AttributeError, OSError):
        return
