"""The whole way once, for real: rendered films, planted copies, workers, SQL.

In: an empty folder. Out: videos, a database, a printed comparison of found and true, a page.
The truth is only used for printing: nothing in the pipeline sees it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from retrieval.database import migrate, transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import ServiceUnavailable
from retrieval.process import process_engine, process_services
from retrieval.records import Segment
from retrieval.services import stop_services
from retrieval.settings import load_settings
from retrieval.tasks import enqueue_search, send
from retrieval.work import catalogue
from retrieval.work.messages import INGEST, Message
from retrieval.work.searches import read_search
from vcl_plugin.claims import assets
from vcl_plugin.claims.claims import list_claims
from vcl_plugin.claims.segments import read_segments
from vcl_plugin.cli.output import print_rows, print_table, progress
from vcl_plugin.demo.footage import Clip, planted_segments, render_edit, render_reference
from vcl_plugin.reports.evidence import write_evidence
from vcl_plugin.reports.reports import read_report
from vcl_plugin.web.keys import add_key, find_viewer, list_keys

DESK_PORT = 8080
TOLERANCE = 2.0  # seconds by which an end may be off
REFERENCE_SECONDS = 60
SHOWN = {
    "infringing_segments": (
        "asset",
        "query",
        "query_start",
        "query_end",
        "reference_start",
        "reference_end",
        "score",
    ),
    "infringing_seconds_by_asset": ("owner", "asset", "uploads", "segments", "infringing_seconds"),
}
WORKS = {
    "Northlight Pictures": ["Harbour", "Paper Planets", "The Long Field"],
    "Ostrava Studio": ["Clockwork Garden", "Saltwater", "Night Tram"],
}


@dataclass(frozen=True)
class Upload:
    """A query video and what was planted in it: the reference's file and the true segment."""

    path: Path
    truth: list[tuple[Path, Segment]]


def run_demo(folder: Path, stdout: Console, stderr: Console, keep: bool = False) -> bool:
    """Returns whether every planted copy was found and the innocent upload left alone."""
    folder = folder.absolute()
    os.environ.setdefault("VCL_HOME", str(folder / "home"))
    settings = load_settings()
    with progress() as bar:
        references = _render_references(folder / "references", bar)
        uploads = _render_uploads(folder / "uploads", list(references), bar)
    migrate(process_services(settings).database_url)
    engine = process_engine()
    try:
        with _worker(folder / "worker.log"), progress() as bar:
            _add_references(engine, references, bar)
            searches = _search(engine, uploads, bar)
        is_right = _report(engine, uploads, searches, folder, stdout)
        _tell_desk(engine, folder, stdout)
        return is_right
    finally:
        if not keep:
            stop_services(settings)


def serve_desk(folder: Path, stdout: Console, keep: bool = False) -> None:
    """The desk with the demo's claims, and a worker for what is searched there, until stopped."""
    engine = process_engine()
    port = _find_port(DESK_PORT)
    key = _read_key(engine, folder)
    stdout.print(f"the desk: http://127.0.0.1:{port}/login#{key}", soft_wrap=True)
    command = [sys.executable, "-m", "vcl_plugin.cli", "serve", "--port", str(port)]
    try:
        with _worker(folder.absolute() / "worker.log"), suppress(KeyboardInterrupt):
            subprocess.run(command, check=False)
    finally:
        if not keep:
            stop_services(engine.settings)


def _tell_desk(engine: RetrievalEngine, folder: Path, stdout: Console) -> None:
    """Where these claims can be reviewed. What follows `#` stays in the browser."""
    address = f"http://127.0.0.1:{DESK_PORT}/login#{_read_key(engine, folder)}"
    stdout.print(f"the desk with these claims: {address}", soft_wrap=True)
    stdout.print(
        f"  served by: VCL_HOME={engine.settings.home} {Path(sys.executable).parent / 'vcl'} serve",
        soft_wrap=True,
    )
    stdout.print("  or demo and desk in one: vcl demo --serve")


def _read_key(engine: RetrievalEngine, folder: Path) -> str:
    """A key for the desk, kept beside the demo's videos so that its address stays the same."""
    path = folder.absolute() / "desk.key"
    with transaction(engine.database) as connection:
        if path.exists() and find_viewer(connection, key=path.read_text().strip()) is not None:
            return path.read_text().strip()
        taken = {row["name"] for row in list_keys(connection)}
        names = ("analyst", *(f"analyst {number}" for number in range(2, len(taken) + 3)))
        name = next(each for each in names if each not in taken)
        key = add_key(connection, name, "manager", created_by="vcl demo")
    path.touch(mode=0o600)
    path.write_text(f"{key}\n")
    return key


def _find_port(wanted: int) -> int:
    """That port, or a free one where it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ServiceUnavailable("no port of this machine is free")


def _render_references(folder: Path, bar: Progress) -> dict[Path, tuple[str, str]]:
    works = [(owner, title) for owner, titles in WORKS.items() for title in titles]
    task = bar.add_task("rendering reference videos", total=len(works))
    films = {}
    for seed, (owner, title) in enumerate(works, start=1):
        path = folder / f"{title.lower().replace(' ', '_')}.mp4"
        if not path.exists():
            render_reference(path, seed=seed, seconds=REFERENCE_SECONDS)
        films[path] = (owner, title)
        bar.advance(task)
    return films


def _render_uploads(folder: Path, films: Sequence[Path], bar: Progress) -> list[Upload]:
    """Six edits; the filler between copies is footage that is nobody's reference."""
    other = folder.parent / "other"
    fillers = [other / f"filler_{number}.mp4" for number in (1, 2)]
    plans: dict[str, tuple[list[Clip], int | None]] = {
        "plain": ([Clip(films[0], 12, 36)], None),
        "cropped": (
            [
                Clip(fillers[0], 0, 8, is_copy=False),
                Clip(films[1], 20, 45, crop=0.2),
                Clip(fillers[0], 8, 14, is_copy=False),
            ],
            120_000,
        ),
        "mirrored": ([Clip(films[2], 5, 30, is_mirrored=True)], None),
        "faster": (
            [Clip(fillers[1], 0, 6, is_copy=False), Clip(films[3], 10, 46, speed=1.5)],
            None,
        ),
        "spliced": (
            [
                Clip(fillers[0], 14, 22, is_copy=False),
                Clip(films[4], 30, 48),
                Clip(fillers[1], 6, 16, is_copy=False),
                Clip(films[5], 4, 20),
                Clip(fillers[1], 16, 22, is_copy=False),
            ],
            None,
        ),
        "innocent": ([Clip(fillers[1], 22, 58, is_copy=False)], None),
    }
    task = bar.add_task("rendering uploads", total=len(fillers) + len(plans))
    for seed, filler in enumerate(fillers, start=101):
        if not filler.exists():
            render_reference(filler, seed=seed, seconds=REFERENCE_SECONDS)
        bar.advance(task)
    uploads = []
    for name, (clips, bitrate) in plans.items():
        path = folder / f"{name}.mp4"
        if not path.exists():
            render_edit(path, clips, bitrate=bitrate)
        uploads.append(Upload(path, planted_segments(clips)))
        bar.advance(task)
    return uploads


@contextmanager
def _worker(log: Path) -> Iterator[None]:
    """A real worker process beside us, stopped gently at the end."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "vcl_plugin.cli", "worker"], stdout=file, stderr=file
        )
    try:
        time.sleep(0.2)
        if process.poll() is not None:
            raise ServiceUnavailable(f"the worker did not start; its last words are in {log}")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()


def _add_references(
    engine: RetrievalEngine, references: dict[Path, tuple[str, str]], bar: Progress
) -> None:
    task = bar.add_task("describing references", total=len(references))
    ids = []
    for path, (owner, title) in references.items():
        video_id = engine.register(path, title=path.stem)
        with transaction(engine.database) as connection:
            assets.add_reference(connection, video_id, assets.add_asset(connection, owner, title))
        send([Message(INGEST, {"video_id": video_id})])
        ids.append(video_id)
    while True:
        with transaction(engine.database) as connection:
            states = [catalogue.read_video(connection, each).status for each in ids]
        done = sum(state.is_final for state in states)
        bar.update(task, completed=done)
        if done == len(ids):
            return
        time.sleep(0.2)


def _search(engine: RetrievalEngine, uploads: Sequence[Upload], bar: Progress) -> dict[Path, str]:
    task = bar.add_task("searching uploads", total=len(uploads))
    found = {each.path: enqueue_search(each.path, title=each.path.stem) for each in uploads}
    while True:
        with transaction(engine.database) as connection:
            states = [read_search(connection, each).status for each in found.values()]
        done = sum(state.is_final for state in states)
        bar.update(task, completed=done)
        if done == len(found):
            return found
        time.sleep(0.2)


def _report(
    engine: RetrievalEngine,
    uploads: Sequence[Upload],
    searches: dict[Path, str],
    folder: Path,
    stdout: Console,
) -> bool:
    rows, is_right = [], True
    with transaction(engine.database) as connection:
        for upload in uploads:
            segments = read_segments(connection, searches[upload.path])
            for row in _compare(upload, segments):
                rows.append(row)
                is_right = is_right and row["verdict"].startswith("✓")
        print_rows(rows, False, empty="", title="planted and found")
        for name in SHOWN:
            report = read_report(connection, name)
            shown = [at for at, column in enumerate(report.columns) if column in SHOWN[name]]
            print_table(
                [report.columns[at] for at in shown],
                [[row[at] for at in shown] for row in report.rows],
                title=f"SELECT {', '.join(SHOWN[name])} FROM {name}",
            )
        claims = sorted(list_claims(connection), key=lambda claim: claim["id"])
        print_rows(
            [
                {
                    name: claim[name]
                    for name in ("id", "status", "owner", "asset", "query", "seconds")
                }
                for claim in claims
            ],
            False,
            empty="no claims",
            title="claims",
        )
    page = write_evidence(engine, folder / "evidence.html")
    found = sum(row["verdict"].startswith("✓") for row in rows)
    stdout.print(f"{found} of {len(rows)} as planted (both ends within {TOLERANCE:g} s)")
    stdout.print(f"evidence page: {page}")
    return is_right


def _compare(upload: Upload, segments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each planted segment beside what was found for it; one row for an innocent."""
    claimed = [each for each in segments if each["claim_id"] is not None]
    if not upload.truth:
        verdict = f"✗ {len(claimed)} segments claimed" if claimed else "✓ nothing claimed"
        return [_row(upload, "", None, None, verdict)]
    rows = []
    for source, truth in upload.truth:
        true = truth.as_dict()
        candidates = [each for each in claimed if each["reference"] == source.stem]
        best = min(candidates, key=lambda each: _error(each, true), default=None)
        verdict = "✗ missed"
        if best is not None:
            error = _error(best, true)
            verdict = f"{'✓' if error <= TOLERANCE else '✗'} off by {error:.1f} s"
        rows.append(_row(upload, source.stem, true, best, verdict))
    planted = {source.stem for source, _ in upload.truth}
    wrong = [each for each in claimed if each["reference"] not in planted]
    if wrong:
        rows.append(_row(upload, wrong[0]["reference"], None, wrong[0], "✗ claimed without cause"))
    return rows


def _row(
    upload: Upload,
    reference: str,
    true: dict[str, Any] | None,
    found: dict[str, Any] | None,
    verdict: str,
) -> dict[str, Any]:
    return {
        "upload": upload.path.stem,
        "planted seconds": "—" if true is None else _interval(true, "query"),
        "found": "—" if found is None else _interval(found, "query"),
        "of reference": reference or "—",
        "planted": "—" if true is None else _interval(true, "reference"),
        "found there": "—" if found is None else _interval(found, "reference"),
        "verdict": verdict,
    }


def _error(found: dict[str, Any], true: dict[str, Any]) -> float:
    """The worst of the four ends."""
    ends = ("query_start", "query_end", "reference_start", "reference_end")
    return max(abs(found[end] - true[end]) for end in ends)


def _interval(row: dict[str, Any], side: str) -> str:
    return f"{row[side + '_start']:.1f}–{row[side + '_end']:.1f}"
