"""A real receiver on loopback: it keeps what it was sent, and answers as it was told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Message:
    """What came in one request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """How it answers, and what it was sent."""

    url: str
    status: int = 204
    location: str | None = None
    drips: bool = False  # a byte of its header at a time, without end
    body: bytes = b""
    messages: list[Message] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def wait(self, count: int, seconds: float = 60.0) -> list[Message]:
        deadline = time.monotonic() + seconds
        while len(self.messages) < count:
            assert time.monotonic() < deadline, f"{len(self.messages)} of {count} messages came"
            time.sleep(0.02)
        return list(self.messages)


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.messages.append(Message(self.path, headers, body))
            if receiver.drips:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not receiver.is_over.wait(0.05):
                    try:
                        self.wfile.write(b"x")
                        self.wfile.flush()
                    except OSError:
                        return
                return
            self.send_response(receiver.status)
            if receiver.location is not None:
                self.send_header("Location", receiver.location)
            self.send_header("Content-Length", str(len(receiver.body)))
            self.end_headers()
            try:
                self.wfile.write(receiver.body)
            except OSError:
                return  # nobody reads it

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/hook")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.is_over.set()
        server.shutdown()
        server.server_close()
