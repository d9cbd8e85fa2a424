"""The pages of what is protected: owners, their assets, references with coverage and conflicts.

In: which owner or asset, and where the last page ended. Out: pages of holdings.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from retrieval.database import transaction
from retrieval.errors import NotFound
from vcl_plugin.claims import holdings
from vcl_plugin.reports import coverage
from vcl_plugin.web.desk.pages import Here, PageRoute, Reader, render

router = APIRouter(route_class=PageRoute)

ROWS = 50


@router.get("/references")
def show_references(
    request: Request,
    viewer: Reader,
    site: Here,
    owner: str = "",
    asset: str = "",
    after: str = "",
) -> Response:
    """References, which stretches of them are copied, and which are other owners' too."""
    asset_id = int(asset) if asset.isdigit() and len(asset) < 19 else None
    with transaction(site.database) as connection:
        page = holdings.list_references(
            connection,
            viewer.owners,
            owner=owner or None,
            asset_id=asset_id,
            limit=ROWS,
            after=after or None,
        )
        covered = coverage.read_coverage(connection, [each["id"] for each in page.rows])
        conflicts = coverage.list_conflicts(connection, viewer.owners)
        owners = [each["name"] for each in holdings.list_owners(connection, viewer.owners).rows]
    return render(
        request,
        viewer,
        "references.html",
        references=page.rows,
        next=page.next,
        covered=covered,
        conflicts=conflicts,
        owners=owners,
        values={"owner": owner, "asset": asset},
    )


@router.get("/owners")
def show_owners(request: Request, viewer: Reader, site: Here) -> Response:
    """Owners, with how much of theirs is copied; of the one that is named, the assets."""
    with transaction(site.database) as connection:
        owners = holdings.list_owners(connection, viewer.owners).rows
        totals = coverage.read_totals(connection, viewer.owners)
    return render(
        request,
        viewer,
        "owners.html",
        owners=owners,
        totals=totals,
        most=max((each["infringing_seconds"] for each in totals.values()), default=0.0),
    )


@router.get("/owners/assets")
def show_assets(
    request: Request, viewer: Reader, site: Here, owner: str, after: str = ""
) -> Response:
    """The assets of an owner."""
    with transaction(site.database) as connection:
        owners = holdings.list_owners(connection, viewer.owners).rows
        if owner not in {each["name"] for each in owners}:
            raise NotFound(f"there is no owner {owner!r}")
        page = holdings.list_assets(
            connection, viewer.owners, owner=owner, limit=ROWS, after=after or None
        )
        totals = coverage.read_asset_totals(connection, owner)
    return render(
        request,
        viewer,
        "assets.html",
        owner=owner,
        assets=page.rows,
        next=page.next,
        totals=totals,
    )
