"""`/api/v1/webhooks`: addresses that are told what happens, and what became of each message.

In: addresses of a viewer. Out: webhooks as JSON, the secret once; nothing of other owners.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from retrieval.database import transaction
from retrieval.errors import NotFound
from retrieval.paging import LETTERS, MOST
from vcl_plugin.web.access import Site, current_site, require
from vcl_plugin.web.keys import Viewer
from vcl_plugin.web.routing import make_router
from vcl_plugin.webhooks import deliveries, registry

router = make_router("/webhooks", "webhooks")

WebhookId = Annotated[int, Path(ge=1, lt=2**63, description="the webhook's number")]
DeliveryId = Annotated[int, Path(ge=1, lt=2**63, description="the delivery's number")]
Manager = Annotated[Viewer, Depends(require("manage"))]
Here = Annotated[Site, Depends(current_site)]
Event = Literal["claim.raised", "claim.changed", "search.finished"]
Status = Literal["waiting", "delivered", "dead"]


class WebhookRow(BaseModel):
    """An address that is told of events."""

    id: int
    url: str
    events: list[Event]
    owners: list[str] | None = Field(description="whose claims; null: everybody's")
    created_by: str
    created_at: datetime
    waiting: int = Field(description="messages on their way")
    dead: int = Field(description="messages that were given up")


class NewWebhook(WebhookRow):
    secret: str = Field(description="signs what is sent; shown this once")


class WebhookBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=2000)
    events: list[Event] = Field([], max_length=10, description="empty: all")
    owners: list[Annotated[str, Field(max_length=1000)]] | None = Field(
        None, min_length=1, max_length=1000, description="null: all that the key sees"
    )


class DeliveryRow(BaseModel):
    """An event on its way to a webhook."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    webhook_id: int
    event: str
    at: datetime = Field(description="when it happened")
    claim_id: int | None
    search_id: str | None
    status: Status
    attempts: int
    due_at: datetime | None = Field(description="when the next attempt is due")
    answer: str | None = Field(description="to the last attempt")
    delivered_at: datetime | None


class DeliveryPage(BaseModel):
    deliveries: list[DeliveryRow]
    next: str | None = Field(description="cursor of the next page; null: this is the last")


class Resent(BaseModel):
    resent: int


@router.get("", response_model=list[WebhookRow])
def list_webhooks(viewer: Manager, site: Here) -> Any:
    """The webhooks whose owners the key sees, all of them."""
    with transaction(site.database) as connection:
        return [asdict(each) for each in registry.list_webhooks(connection, viewer.owners)]


@router.post("", response_model=NewWebhook, status_code=201)
def add_webhook(viewer: Manager, site: Here, body: WebhookBody) -> Any:
    """Tell an address what happens; the answer has the secret, once."""
    allowed = site.settings.webhook_private
    with transaction(site.database) as connection:
        owners = _confine(body.owners, viewer.owners)
        found, secret = registry.add_webhook(
            connection, body.url, viewer.name, body.events, owners, allowed
        )
    return {**asdict(found), "secret": secret}


@router.get("/{webhook_id}", response_model=WebhookRow)
def read_webhook(viewer: Manager, site: Here, webhook_id: WebhookId) -> Any:
    """One webhook."""
    with transaction(site.database) as connection:
        return asdict(registry.read_webhook(connection, webhook_id, viewer.owners))


@router.delete("/{webhook_id}", status_code=204)
def remove_webhook(viewer: Manager, site: Here, webhook_id: WebhookId) -> None:
    """Tell an address nothing more; what waits for it is dropped."""
    with transaction(site.database) as connection:
        registry.remove_webhook(connection, webhook_id, viewer.owners)


@router.post("/{webhook_id}/test", response_model=DeliveryRow, status_code=202)
def test_webhook(viewer: Manager, site: Here, webhook_id: WebhookId) -> Any:
    """Send a message that says only that the webhook works; its delivery tells the answer."""
    with transaction(site.database) as connection:
        return deliveries.ask_test(connection, webhook_id, viewer.owners)


@router.get("/{webhook_id}/deliveries", response_model=DeliveryPage)
def list_deliveries(
    viewer: Manager,
    site: Here,
    webhook_id: WebhookId,
    status: Annotated[Status | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 50,
    after: Annotated[str | None, Query(max_length=LETTERS, description="`next` of a page")] = None,
) -> Any:
    """What was sent or is to be sent, the newest first."""
    with transaction(site.database) as connection:
        page = deliveries.list_deliveries(
            connection, webhook_id, status, viewer.owners, limit, after
        )
    return {"deliveries": page.rows, "next": page.next}


@router.post("/{webhook_id}/deliveries/{delivery_id}/resend", response_model=Resent)
def resend_delivery(
    viewer: Manager, site: Here, webhook_id: WebhookId, delivery_id: DeliveryId
) -> Any:
    """Send a message once more, whatever became of it."""
    with transaction(site.database) as connection:
        return {"resent": deliveries.resend(connection, webhook_id, delivery_id, viewer.owners)}


@router.post("/{webhook_id}/resend", response_model=Resent)
def resend_dead(viewer: Manager, site: Here, webhook_id: WebhookId) -> Any:
    """Send all messages once more that were given up."""
    with transaction(site.database) as connection:
        return {"resent": deliveries.resend(connection, webhook_id, owners=viewer.owners)}


def _confine(
    wanted: Collection[str] | None, seen: Collection[str] | None
) -> Collection[str] | None:
    """The owners that are wanted, if the viewer sees them; none named: all that they see."""
    if wanted is None or seen is None:
        return seen if wanted is None else wanted
    for owner in sorted(set(wanted) - set(seen)):
        raise NotFound(f"there is no owner {owner!r}; `vcl asset list` shows them all")
    return wanted
