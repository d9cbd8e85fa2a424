"""`vcl ingest`: a whole catalogue of video files, described by the workers.

In: a folder, or what other descriptors described. Out: rows and descriptors for every video in it;
failures listed with their reasons.
Started again it goes on where it was: what is known is not read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import BadVideo, NotFound, Refused
from retrieval.records import Video, VideoStatus
from retrieval.tasks import send
from retrieval.work import catalogue, outdated
from retrieval.work.messages import INGEST, Message
from vcl_plugin.claims import assets
from vcl_plugin.claims.turns import take_references
from vcl_plugin.cli.films import find_films
from vcl_plugin.cli.output import AsJson, print_json, print_rows, stderr, stdout
from vcl_plugin.cli.session import WorkerHint, open_engine


def ingest(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of video files, with all below it.")
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option("--owner", "-o", help="References of this owner; each file is an asset."),
    ] = None,
    asset: Annotated[
        str | None, typer.Option("--asset", "-a", help="References of this one asset.")
    ] = None,
    redescribe: Annotated[
        bool,
        typer.Option(
            "--redescribe",
            help="Instead of a folder: all videos that another descriptor, or other weights, "
            "described; references first.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Describe every video of a folder; with --owner or --asset they become references."""
    if owner is not None and asset is not None:
        raise Refused("say --owner (each file an asset) or --asset (one for all), not both")
    if redescribe and (folder or owner or asset):
        raise Refused("--redescribe takes the videos that are known; name no folder beside it")
    if folder is None and not redescribe:
        raise Refused("name a folder of video files, or say --redescribe")
    failures: list[dict[str, Any]] = []
    with _bar() as bar:
        if folder is None:
            engine = open_engine()
            files, ids = 0, _send_outdated(engine)
        else:
            files, ids, engine = _read_folder(folder, owner, asset, failures, bar)
        videos = _wait(engine, ids, bar)
    duplicates = max(0, files - len(ids) - len(failures))
    failures += [
        {"file": video.path, "reason": video.reason, "message": video.message}
        for video in videos
        if video.status == VideoStatus.FAILED
    ]
    summary = {
        "files": files or len(ids),
        "ready": sum(video.status == VideoStatus.READY for video in videos),
        "duplicates": duplicates,
        "failed": len(failures),
        "seconds_of_video": sum(video.duration or 0.0 for video in videos),
    }
    if as_json:
        print_json({**summary, "failures": failures})
    else:
        stdout.print(", ".join(f"{name.replace('_', ' ')} {n:g}" for name, n in summary.items()))
        print_rows(failures, False, empty="", title="failures")
    if failures:
        raise typer.Exit(1)


def _read_folder(
    folder: Path,
    owner: str | None,
    asset: str | None,
    failures: list[dict[str, Any]],
    bar: Progress,
) -> tuple[int, list[str], RetrievalEngine]:
    """How many files the folder has, and the ids of their videos, sent where there is work."""
    if not folder.is_dir():
        raise NotFound(f"{folder} is no folder; for single files use `vcl reference add`")
    engine = open_engine()
    files = find_films(folder)
    task = bar.add_task("reading files", total=len(files), facts="")
    ids = dict.fromkeys(
        video_id
        for path in bar.track(files, task_id=task)
        for video_id in _register(engine, path, owner, asset, failures)
    )
    return len(files), list(ids), engine


def _send_outdated(engine: RetrievalEngine) -> list[str]:
    """The videos that only other descriptors have described, sent to be described by ours."""
    with transaction(engine.database) as connection:
        ids = outdated.list_videos(connection, engine.descriptor.fingerprint.key)
        catalogue.reopen(connection, *ids, is_sent=True)
    send(Message(INGEST, {"video_id": video_id}) for video_id in ids)
    return ids


def _register(
    engine: RetrievalEngine,
    path: Path,
    owner: str | None,
    asset: str | None,
    failures: list[dict[str, Any]],
) -> Iterator[str]:
    """The video's id, its ingest sent if there is something to do; nothing for a file that is none.

    That is describing it by the descriptor of today, or welcoming it as a new reference.
    """
    try:
        with transaction(engine.database) as connection:
            known = catalogue.find_unchanged(connection, path.absolute())
        video_id = known or engine.register(path)
        with transaction(engine.database) as connection:
            # The same film under a second name stands for the asset it has.
            is_known = catalogue.read_video(connection, video_id).is_reference
            is_new = not is_known and (owner is not None or asset is not None)
            if is_new:
                take_references(connection, [video_id])  # before the asset, as everybody does
                asset_id = (
                    assets.add_asset(connection, owner, path.stem)
                    if owner is not None
                    else assets.find_asset(connection, str(asset))
                )
                assets.add_reference(connection, video_id, asset_id)
            status = catalogue.read_video(connection, video_id).status
            is_described = engine.is_described(connection, video_id)
            if status == VideoStatus.READY and not is_described:
                catalogue.reopen(connection, video_id, is_sent=True)
            is_done = status == VideoStatus.READY and is_described and not is_new
    except (BadVideo, Refused) as error:
        failures.append({"file": str(path), "reason": error.code, "message": str(error)})
        return
    if not is_done:
        send([Message(INGEST, {"video_id": video_id})])
    yield video_id


def _wait(engine: RetrievalEngine, ids: list[str], bar: Progress) -> list[Video]:
    """Until every video is described or failed; shows how much faster than playing it goes."""
    started = time.monotonic()
    key = engine.descriptor.fingerprint.key
    hint = WorkerHint()
    task = bar.add_task("describing", total=len(ids), facts="")
    already: float | None = None
    while True:
        with transaction(engine.database) as connection:
            described = catalogue.list_described(connection, ids, key)
            videos = [
                _as_seen(video, described) for video in catalogue.read_videos(connection, ids)
            ]
        done = [
            video
            for video in videos
            if video.status == VideoStatus.FAILED
            or (video.status == VideoStatus.READY and video.id in described)
        ]
        seconds = sum(video.duration or 0.0 for video in done)
        already = seconds if already is None else already
        rate = (seconds - already) / max(time.monotonic() - started, 1e-3)
        bar.update(task, completed=len(done), facts=f"{rate:.0f}x real time" if rate else "")
        if len(done) == len(ids):
            return videos
        is_running = any(video.status == VideoStatus.RUNNING for video in videos)
        hint.watch(seconds > already or is_running)
        time.sleep(0.3)


def _as_seen(video: Video, described: set[str]) -> Video:
    """One that is ready for others only, with the reason why it cannot be described, has failed."""
    is_for_others = video.status == VideoStatus.READY and video.id not in described
    return replace(video, status=VideoStatus.FAILED) if is_for_others and video.reason else video


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
    )
