"""Allowances, exclusions and shares on the command line: listed, and revoked by number.

In: numbers, owners, videos. Out: rows; claims that are judged anew.
"""

from __future__ import annotations

from typing import Annotated

import typer

from retrieval.database import transaction
from retrieval.work.catalogue import find_video
from vcl_plugin.claims import assets, exceptions
from vcl_plugin.claims.rights import find_owner
from vcl_plugin.cli.output import AsJson, print_outcome, print_rows, say_expired
from vcl_plugin.cli.session import current_user, open_site
from vcl_plugin.cli.settling import follow_change

Owner = Annotated[str | None, typer.Option("--owner", "-o", help="Only this owner's.")]


def list_allowances(owner: Owner = None, as_json: AsJson = False) -> None:
    """Who may use what without being claimed, the newest first."""
    with transaction(open_site().database) as connection:
        if owner is not None:
            find_owner(connection, owner)
        rows = exceptions.list_allowances(connection, owner)
    print_rows(rows, as_json, empty="nobody is allowed anything; `vcl asset allow` does")


def revoke_allowance(
    allowance: Annotated[int, typer.Argument(help="Its number, see `vcl asset allowances`.")],
    as_json: AsJson = False,
) -> None:
    """Allow a use no more; the uploads it was about are judged anew."""
    site = open_site()
    with transaction(site.database) as connection:
        change = exceptions.revoke_allowance(connection, allowance, current_user())
    expired = follow_change(site, change)
    print_outcome(
        f"allowance {allowance} is revoked{say_expired(expired)}",
        {"revoked": allowance, "expired_claims": expired},
        as_json,
    )


def list_exclusions(
    video: Annotated[
        str | None, typer.Argument(help="Only of this reference: id, title or path.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Stretches of references that claim nothing, the newest first."""
    with transaction(open_site().database) as connection:
        video_id = None if video is None else find_video(connection, video).id
        rows = exceptions.list_exclusions(connection, video_id)
    print_rows(rows, as_json, empty="nothing is excluded")


def revoke_exclusion(
    exclusion: Annotated[int, typer.Argument(help="Its number, see `vcl reference exclusions`.")],
    as_json: AsJson = False,
) -> None:
    """Let an excluded stretch claim again; the uploads that match it are judged anew."""
    site = open_site()
    with transaction(site.database) as connection:
        change = exceptions.revoke_exclusion(connection, exclusion, current_user())
    expired = follow_change(site, change)
    print_outcome(
        f"exclusion {exclusion} is revoked{say_expired(expired)}",
        {"revoked": exclusion, "expired_claims": expired},
        as_json,
    )


def list_shares(
    asset: Annotated[
        str | None, typer.Argument(help="Only of this asset: number or title.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Who holds how much of which asset, and where; `vcl asset share --percent 0` gives one up."""
    with transaction(open_site().database) as connection:
        asset_id = None if asset is None else assets.find_asset(connection, asset)
        rows = exceptions.list_shares(connection, asset_id)
    print_rows(rows, as_json, empty="nobody holds a share")
