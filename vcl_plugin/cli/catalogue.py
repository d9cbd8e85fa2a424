"""`vcl asset` and `vcl reference`: what is protected, and by which videos it is known.

In: titles, owners, video files. Out: rows, and ingest work for the workers.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retrieval.database import transaction
from retrieval.errors import BadVideo, Refused
from retrieval.records import Video, VideoStatus
from retrieval.work import catalogue, searches
from vcl_plugin.claims import assets, holdings, rights, rulebook
from vcl_plugin.claims.claims import list_standing
from vcl_plugin.cli import exceptions
from vcl_plugin.cli.output import (
    AsJson,
    print_json,
    print_outcome,
    print_rows,
    progress,
    say_expired,
)
from vcl_plugin.cli.session import (
    WorkerHint,
    current_user,
    open_engine,
    open_site,
    require_film,
)
from vcl_plugin.cli.settling import follow_change

if TYPE_CHECKING:
    from retrieval.engine import RetrievalEngine

asset = typer.Typer(help="Works that somebody owns.", no_args_is_help=True)
reference = typer.Typer(help="Videos that show an asset.", no_args_is_help=True)
asset.command("allowances")(exceptions.list_allowances)
asset.command("revoke")(exceptions.revoke_allowance)
asset.command("shares")(exceptions.list_shares)
reference.command("exclusions")(exceptions.list_exclusions)
reference.command("include")(exceptions.revoke_exclusion)


@asset.command("add")
def add_asset(
    title: Annotated[str, typer.Argument(help="Title of the work.")],
    owner: Annotated[str, typer.Option("--owner", "-o", help="Who owns it.")],
    as_json: AsJson = False,
) -> None:
    """Add an asset; the same owner and title twice is the same asset."""
    site = open_site()
    with transaction(site.database) as connection:
        asset_id = assets.add_asset(connection, owner, title)
    row = {"id": asset_id, "owner": owner, "title": title}
    if as_json:
        print_json(row)
    else:
        print_rows([row], False, empty="")


@asset.command("list")
def list_assets(as_json: AsJson = False) -> None:
    """All assets and how many reference videos each has."""
    site = open_site()
    with transaction(site.database) as connection:
        rows = holdings.list_assets(connection).rows
    if not as_json:
        shown = ("id", "owner", "title", "reference_videos")
        rows = [{name: row[name] for name in shown} for row in rows]
    print_rows(
        rows, as_json, empty="no assets yet; add one with `vcl asset add TITLE --owner NAME`"
    )


@asset.command("share")
def share_asset(
    asset: Annotated[str, typer.Argument(help="Number or title of the asset.")],
    owner: Annotated[str, typer.Option("--owner", "-o", help="Who owns the share.")],
    percent: Annotated[
        float, typer.Option("--percent", help="How much, in per cent; 0 gives it up.")
    ],
    territory: Annotated[
        str, typer.Option("--territory", "-t", help="ISO 3166 code, or WW for everywhere else.")
    ] = rights.WORLD,
    as_json: AsJson = False,
) -> None:
    """Set an owner's share of an asset in a territory."""
    site = open_site()
    with transaction(site.database) as connection:
        asset_id = assets.find_asset(connection, asset)
        change = rulebook.share_asset(
            connection, current_user(), asset_id, owner, percent, territory
        )
    expired = follow_change(site, change)
    print_outcome(
        f"{owner} owns {percent:g} % of asset {asset_id} in {territory}{say_expired(expired)}",
        {
            **{"asset": asset_id, "owner": owner, "territory": territory, "percent": percent},
            "expired_claims": expired,
        },
        as_json,
    )


@asset.command("remove")
def remove_asset(
    asset: Annotated[str, typer.Argument(help="Number or title of the asset.")],
    as_json: AsJson = False,
) -> None:
    """Protect an asset no more; claims on it can only be released from then on."""
    site = open_site()
    with transaction(site.database) as connection:
        asset_id = assets.find_asset(connection, asset)
        references = assets.remove_asset(connection, asset_id)
        standing = list_standing(connection, asset_id)
    count = len(references)
    videos = f" with its {count} reference{'' if count == 1 else 's'}" if count else ""
    left = f"; claims that still stand: {', '.join(map(str, standing))}" if standing else ""
    print_outcome(
        f"asset {asset_id} is removed{videos}{left}",
        {"asset": asset_id, "references": references, "standing_claims": standing},
        as_json,
    )


@asset.command("allow")
def allow(
    owner: Annotated[str, typer.Argument(help="Who allows it.")],
    uploader: Annotated[str | None, typer.Option(help="Everything this uploader uploads.")] = None,
    upload: Annotated[
        str | None,
        typer.Option(help="One upload: the platform's id, URL, or video id."),
    ] = None,
    asset: Annotated[str | None, typer.Option(help="One asset; default: all of them.")] = None,
    note: Annotated[str | None, typer.Option(help="Anything worth remembering.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let an uploader, or one upload, use an owner's assets without being claimed."""
    site = open_site()
    with transaction(site.database) as connection:
        asset_id = None if asset is None else assets.find_asset(connection, asset)
        change = rulebook.allow_use(
            connection, current_user(), owner, uploader, upload, asset_id, note
        )
    expired = follow_change(site, change)
    what = "everything of theirs" if asset_id is None else f"asset {asset_id}"
    print_outcome(
        f"{owner} lets {uploader or upload} use {what}{say_expired(expired)}",
        {
            **{"owner": owner, "uploader": uploader, "upload": upload, "asset": asset_id},
            "expired_claims": expired,
        },
        as_json,
    )


@reference.command("exclude")
def exclude(
    video: Annotated[str, typer.Argument(help="The reference's id, title or path.")],
    start: Annotated[float, typer.Argument(help="First second that proves nothing.")],
    end: Annotated[float, typer.Argument(help="The second after the last.")],
    note: Annotated[str | None, typer.Option(help="Why: an intro, licensed music.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let a stretch of a reference claim nothing; undecided claims on nothing else expire."""
    site = open_site()
    with transaction(site.database) as connection:
        video = catalogue.find_video(connection, video).id
        change = rulebook.exclude_stretch(connection, current_user(), video, start, end, note)
    expired = follow_change(site, change)
    print_outcome(
        f"seconds {start:g} to {end:g} of {video} are excluded{say_expired(expired)}",
        {"video": video, "start": start, "end": end, "expired_claims": expired},
        as_json,
    )


@reference.command("add")
def add_reference(
    videos: Annotated[list[str], typer.Argument(help="Video files, or ids of registered videos.")],
    asset: Annotated[str, typer.Option("--asset", "-a", help="Number or title of the asset.")],
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Return when they can be searched and were compared with the other references; "
            "footage that another owner holds too is shown.",
        ),
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Give up waiting after so many seconds.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add reference videos of an asset; workers describe them.

    A video that another engine registered is named by its id; what was found of it is claimed.
    """
    from vcl_plugin import references  # with Celery, which the other commands need not import

    engine = open_engine()
    with transaction(engine.database) as connection:
        asset_id = assets.find_asset(connection, asset)
    rows: list[dict[str, Any]] = []
    for name in videos:
        try:
            video_id = _find_registered(engine, name) or engine.register(require_film(Path(name)))
            references.add_reference(engine, video_id, asset_id)
        except (BadVideo, Refused) as error:
            rows.append(
                {
                    "id": None,
                    "title": Path(name).name,
                    "status": VideoStatus.FAILED,
                    "reason": error.code,
                    "message": str(error),
                }
            )
            continue
        rows.append({"id": video_id})
    ids = [row["id"] for row in rows if row["id"] is not None]
    if wait:
        with transaction(engine.database) as connection:
            ours = [video.id for video in catalogue.read_videos(connection, ids) if video.path]
        _wait_until_compared(engine, ours, timeout)
    found = iter(_read_videos(engine, ids))
    rows = [row if row["id"] is None else next(found).as_dict() for row in rows]
    with transaction(engine.database) as connection:
        conflicts = assets.list_conflicts(connection, ids) if wait else []
    if as_json:
        print_json([{**row, "conflicts": _conflicts_of(row["id"], conflicts)} for row in rows])
    else:
        shown = ("id", "title", "status", "reason", "message")
        print_rows([{name: row[name] for name in shown} for row in rows], False, empty="")
        if conflicts:
            print_rows(conflicts, False, empty="", title="footage that another owner holds too")
    if any(row["status"] == VideoStatus.FAILED for row in rows):
        raise typer.Exit(1)


@reference.command("list")
def list_references(as_json: AsJson = False) -> None:
    """All reference videos and their state."""
    site = open_site()
    with transaction(site.database) as connection:
        rows = holdings.list_references(connection).rows
    if not as_json:
        hidden = ("asset_id", "created_at")
        rows = [{name: row[name] for name in row if name not in hidden} for row in rows]
    print_rows(
        rows, as_json, empty="no references yet; add one with `vcl reference add VIDEO -a ASSET`"
    )


@reference.command("remove")
def remove_reference(
    video: Annotated[str, typer.Argument(help="The video's id, title or path.")],
    as_json: AsJson = False,
) -> None:
    """Stop searching against a video; what was found so far stays."""
    site = open_site()
    with transaction(site.database) as connection:
        video = catalogue.find_video(connection, video).id
        assets.remove_reference(connection, video)
    print_outcome(
        f"{video} is no reference any more", {"id": video, "is_reference": False}, as_json
    )


def _find_registered(engine: RetrievalEngine, name: str) -> str | None:
    """The video with that id, unless there is a file of that name."""
    if Path(name).exists():
        return None
    with transaction(engine.database) as connection:
        found = catalogue.read_videos(connection, [name])
    return found[0].id if found else None


def _wait_until_compared(engine: RetrievalEngine, ids: list[str], timeout: float | None) -> None:
    """Until each video has failed, or is described and its search against the others is over."""
    deadline = None if timeout is None else time.monotonic() + timeout
    hint = WorkerHint()
    with progress() as bar:
        task = bar.add_task("describing references", total=len(ids))
        while True:
            videos = _read_videos(engine, ids)
            with transaction(engine.database) as connection:
                compared = searches.list_searched(connection, ids)
            left = [
                video
                for video in videos
                if video.status != VideoStatus.FAILED and video.id not in compared
            ]
            is_described = all(video.status.is_final for video in videos)
            doing = "comparing them with the others" if is_described else "describing references"
            bar.update(task, completed=len(ids) - len(left), description=doing)
            hint.watch(any(video.attempts for video in videos) or not left)
            if not left:
                return
            if deadline is not None and time.monotonic() > deadline:
                waiting = "compared with the others" if is_described else "described"
                raise Refused(
                    f"{len(left)} of {len(ids)} videos are not {waiting} after {timeout:g} "
                    "seconds; is a worker running? start one with `vcl worker`",
                    code="timeout",
                )
            time.sleep(0.2)


def _conflicts_of(video_id: str | None, conflicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in conflicts if video_id == row["reference_id"]]


def _read_videos(engine: RetrievalEngine, ids: list[str]) -> list[Video]:
    with transaction(engine.database) as connection:
        return [catalogue.read_video(connection, each) for each in ids]
