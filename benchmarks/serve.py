"""How fast `vcl serve` lists claims, and whether many uploads at once lose one.

Run: python benchmarks/serve.py [--claims 100000] [--clients 50] [--seconds 20] [--uploads 500]

A real server in a process of its own, on an embedded PostgreSQL that holds the rows of
`benchmarks/reports.py`; the clients share the machine with it. Each client asks for a page of 50
claims: once a second, as desks do, and then again as soon as it has its answer. The yardsticks of
the machine are `/livez`, which asks nothing of anybody, and the same page read without HTTP. Then
so many uploads of 1 MB are sent at the same moment; each is looked for in PostgreSQL and on disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from reports import FILL
from sqlalchemy import Engine, text

from retrieval.database import connect, migrate, transaction
from retrieval.services import ensure_services, stop_services
from retrieval.settings import Settings
from vcl_plugin.claims.queue import list_queue
from vcl_plugin.web.keys import add_key

PORT = 18080
PAGE = "/api/v1/claims?limit=50&status=potential"
MEGABYTE = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--claims", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--uploads", type=int, default=500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        settings = Settings(home=Path(folder) / "home")
        endpoints = ensure_services(settings)
        database = connect(endpoints.database_url)
        try:
            key = fill(database, arguments.claims)
            server = start_server(settings)
            try:
                asyncio.run(measure(database, key, arguments))
                check_uploads(database, settings, arguments.uploads)
            finally:
                server.terminate()
                server.wait(timeout=30)
            database.dispose()
        finally:
            stop_services(settings)


def fill(database: Engine, claims: int) -> str:
    """The rows, and a key that sees them all."""
    migrate(database.url.render_as_string(hide_password=False))
    with transaction(database) as connection:
        for statement in FILL.split(";\n"):
            values = {"claims": claims, "each": 1}  # segments, which no list of claims reads
            wanted = {name: value for name, value in values.items() if f":{name}" in statement}
            connection.execute(text(statement), wanted)
        key = add_key(connection, "bench", "manager", "bench")
    with database.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(text("VACUUM ANALYZE"))
    return key


def start_server(settings: Settings) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "VCL_HOME": str(settings.home),
        "VCL_REQUESTS_PER_SECOND": "100000",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "vcl_plugin.cli", "serve", "--port", str(PORT)], env=environment
    )


async def measure(database: Engine, key: str, arguments: argparse.Namespace) -> None:
    await wait_for_server()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    times = []
    for _ in range(50):
        started = time.perf_counter()
        with transaction(database) as connection:
            list_queue(connection, limit=50)
        times.append(time.perf_counter() - started)
    tell("the page without HTTP", times)
    clients, seconds = arguments.clients, arguments.seconds
    for path, name in (("/livez", "/livez"), (PAGE, "a page of 50 claims")):
        for pause, how in ((1.0, "once a second each"), (0.0, "again at once")):
            ends = time.perf_counter() + seconds
            works = (client(path, key, ends, pause, number / clients) for number in range(clients))
            found = await asyncio.gather(*works)
            tell(f"{name}, {clients} clients, {how}", [*chain(*found)], seconds)
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}")
    started = time.perf_counter()
    statuses = await asyncio.gather(*(upload(key, n) for n in range(arguments.uploads)))
    taken = time.perf_counter() - started
    counts = {status: statuses.count(status) for status in sorted(set(statuses))}
    print(f"{arguments.uploads} uploads of 1 MB at once: {counts} in {taken:.1f} s")


async def client(path: str, key: str, ends: float, pause: float, offset: float) -> list[float]:
    """Ask again and again over one connection; returns how long each answer took."""
    if pause:
        await asyncio.sleep(offset * pause)
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    request = head("GET", path, key).encode() + b"\r\n"
    times = []
    while time.perf_counter() < ends:
        started = time.perf_counter()
        writer.write(request)
        status, _ = await read_answer(reader)
        assert status == 200, status
        times.append(time.perf_counter() - started)
        await asyncio.sleep(max(0.0, pause - times[-1]))
    writer.close()
    return times


async def upload(key: str, number: int) -> int:
    content = number.to_bytes(4, "big") * (MEGABYTE // 4)
    start = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f.mp4"\r\n\r\n'
    body = start + content + b"\r\n--b--\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(
        (
            f"{head('POST', '/api/v1/uploads', key)}Content-Length: {len(body)}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        ).encode()
    )
    writer.write(body)
    await writer.drain()
    status, _ = await read_answer(reader)
    writer.close()
    return status


def head(method: str, path: str, key: str) -> str:
    return f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    header = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = header.lower().split("\r\n")
    length = next(int(each[15:]) for each in lines if each.startswith("content-length:"))
    return int(header.split()[1]), await reader.readexactly(length)


async def wait_for_server() -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", PORT)
        except OSError:
            await asyncio.sleep(0.2)
        else:
            writer.close()
            return
    raise TimeoutError("the server did not start")


def tell(name: str, times: list[float], seconds: float | None = None) -> None:
    rate = "" if seconds is None else f"   {len(times) / seconds:7.1f} a second"
    middle, late = (1000 * each for each in (statistics.median(times), quantile(times, 0.95)))
    print(f"{name:52} median {middle:7.1f} ms   p95 {late:7.1f} ms{rate}", flush=True)


def quantile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def check_uploads(database: Engine, settings: Settings, count: int) -> None:
    with transaction(database) as connection:
        found = connection.execute(
            text("""
            SELECT count(DISTINCT videos.id) AS videos, count(DISTINCT searches.id) AS searches
            FROM searches JOIN videos ON videos.id = query_id WHERE asked_by = 'bench'""")
        ).one()
    files = [path for path in settings.upload_dir.rglob("*.mp4") if path.is_file()]
    whole = sum(path.stat().st_size == MEGABYTE for path in files)
    facts = {"sent": count, "videos": found.videos, "searches": found.searches, "files": whole}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
