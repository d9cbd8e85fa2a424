"""`vcl asset` and `vcl reference`: what is protected, and by which videos it is known.

In: titles, owners, video files. Out: rows, and ingest work for the workers.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from retrieval import catalogue
from retrieval.database import transaction
from retrieval.engine import Message, RetrievalEngine
from retrieval.errors import BadVideo
from retrieval.tasks import send
from vcl_plugin import assets
from vcl_plugin.cli.output import print_json, print_rows, progress, stderr
from vcl_plugin.cli.services import AsJson
from vcl_plugin.cli.session import open_engine

asset = typer.Typer(help="Works that somebody owns.", no_args_is_help=True)
reference = typer.Typer(help="Videos that show an asset.", no_args_is_help=True)


@asset.command("add")
def add_asset(
    title: Annotated[str, typer.Argument(help="Title of the work.")],
    owner: Annotated[str, typer.Option("--owner", "-o", help="Who owns it.")],
    as_json: AsJson = False,
) -> None:
    """Add an asset; the same owner and title twice is the same asset."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        asset_id = assets.add_asset(connection, owner, title)
    row = {"id": asset_id, "owner": owner, "title": title}
    if as_json:
        print_json(row)
    else:
        print_rows([row], False, empty="")


@asset.command("list")
def list_assets(as_json: AsJson = False) -> None:
    """All assets and how many reference videos each has."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        rows = assets.list_assets(connection)
    print_rows(
        rows, as_json, empty="no assets yet; add one with `vcl asset add TITLE --owner NAME`"
    )


@reference.command("add")
def add_reference(
    videos: Annotated[list[Path], typer.Argument(help="Video files.")],
    asset: Annotated[str, typer.Option("--asset", "-a", help="Number or title of the asset.")],
    wait: Annotated[bool, typer.Option("--wait", help="Return when they can be searched.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add reference videos of an asset; workers describe them."""
    engine = open_engine()
    ids: list[str] = []
    failures: list[BadVideo] = []
    for path in videos:
        try:
            video_id = engine.register(path)
        except BadVideo as error:
            failures.append(error)
            continue
        with transaction(engine.database) as connection:
            assets.add_reference(connection, video_id, assets.find_asset(connection, asset))
        ids.append(video_id)
        send([Message("retrieval.ingest", {"video_id": video_id})])
    if wait:
        _wait_until_ingested(engine, ids)
    rows = _read_rows(engine, ids)
    rows += [
        {"id": None, "status": "failed", "reason": e.code, "message": str(e)} for e in failures
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(
            [
                {name: row.get(name) for name in ("id", "title", "status", "reason", "message")}
                for row in rows
            ],
            False,
            empty="nothing was added",
        )
    if any(row["status"] == "failed" for row in rows):
        raise typer.Exit(1)


@reference.command("list")
def list_references(as_json: AsJson = False) -> None:
    """All reference videos and their state."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        rows = assets.list_references(connection)
    print_rows(
        rows, as_json, empty="no references yet; add one with `vcl reference add VIDEO -a ASSET`"
    )


@reference.command("remove")
def remove_reference(
    video: Annotated[str, typer.Argument(help="The video's id, see `vcl reference list`.")],
) -> None:
    """Stop searching against a video; what was found so far stays."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        assets.remove_reference(connection, video)
    stderr.print(f"{video} is no reference any more")


def _wait_until_ingested(engine: RetrievalEngine, ids: list[str]) -> None:
    with progress() as bar:
        task = bar.add_task("describing references", total=len(ids))
        while True:
            rows = _read_rows(engine, ids)
            done = sum(row["status"] in ("ready", "failed") for row in rows)
            bar.update(task, completed=done)
            if done == len(ids):
                return
            time.sleep(0.2)


def _read_rows(engine: RetrievalEngine, ids: list[str]) -> list[dict[str, Any]]:
    with transaction(engine.database) as connection:
        return [catalogue.read_video(connection, each) for each in ids]
