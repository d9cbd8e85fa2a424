"""The rulebook: what an owner decides about assets, each rule written with its change.

In: a rule, and who writes it. Out: the rule, and the number of its change, in the caller's
transaction. The uploads that a change touches are settled afterwards (`changes`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from retrieval.errors import Refused
from retrieval.records import Span
from retrieval.work.uploads import find_uploads
from vcl_plugin.claims import rights
from vcl_plugin.claims.changes import note_change
from vcl_plugin.claims.policies import Policy


def share_asset(
    connection: Connection,
    actor: str,
    asset_id: int,
    owner: str,
    percent: float,
    territory: str = rights.WORLD,
) -> int:
    """Let an owner hold so much of an asset in a territory; 0 gives it up."""
    rights.set_ownership(connection, asset_id, owner, percent, territory)
    what = f"gave {owner} {percent:g} % of asset {asset_id} in {territory}"
    return note_change(connection, actor, what, [asset_id])


def allow_use(
    connection: Connection,
    actor: str,
    owner: str,
    uploader: str | None = None,
    upload: str | None = None,
    asset_id: int | None = None,
    note: str | None = None,
) -> int:
    """Let an uploader, or one upload, use an asset or everything of an owner."""
    rights.allow_use(connection, owner, actor, uploader, upload, asset_id, note)
    contents = set() if upload is None else set(find_uploads(connection, upload).values())
    who = f"uploader {uploader}" if upload is None else f"upload {upload}"
    whose = f"everything of {owner}" if asset_id is None else f"asset {asset_id} of {owner}"
    what = f"let {who} use {whose}"
    return note_change(connection, actor, what, uploader=uploader, query_ids=sorted(contents))


def exclude_stretch(
    connection: Connection,
    actor: str,
    video_id: str,
    start: float,
    end: float,
    note: str | None = None,
) -> int:
    """Let a stretch of a reference claim nothing."""
    try:
        span = Span(start, end)
    except ValueError:
        raise Refused(
            f"the stretch from {start:g} to {end:g} seconds is empty, endless or before the start"
        ) from None
    rights.exclude_span(connection, video_id, span, actor, note)
    what = f"excluded seconds {start:g} to {end:g} of {video_id}"
    return note_change(connection, actor, what, reference_id=video_id)


def write_policy(connection: Connection, actor: str, policy: Policy) -> tuple[int, int]:
    """Write a policy, or the next version of one; returns the version and the change."""
    version = rights.add_policy(connection, policy, actor)
    written = "; ".join(map(str, policy.rules))
    what = f"wrote version {version} of policy {policy.name}: {written}"
    followers = rights.list_followers(connection, policy.name)
    return version, note_change(connection, actor, what, followers)


def assign_policy(
    connection: Connection,
    actor: str,
    name: str,
    asset_id: int | None = None,
    owner: str | None = None,
) -> int:
    """Let an asset, or all assets of an owner, follow a policy."""
    rights.assign_policy(connection, name, asset_id, owner)
    followers: Sequence[int] = [asset_id] if asset_id is not None else []
    if asset_id is None:
        followers = rights.list_followers(connection, name, owner)
    who = f"all assets of {owner}" if asset_id is None else f"asset {asset_id}"
    return note_change(connection, actor, f"let {who} follow policy {name}", followers)
