"""`vcl webhook`: addresses that are told what happens, and what became of each message.

In: addresses, events, owners. Out: a secret that is shown once; deliveries, sent again if asked.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from retrieval.database import transaction
from retrieval.errors import Refused
from vcl_plugin.cli.output import AsJson, print_json, print_outcome, print_rows, stderr, stdout
from vcl_plugin.cli.session import current_user, open_site
from vcl_plugin.webhooks import deliveries, registry
from vcl_plugin.webhooks.courier import Courier

app = typer.Typer(help="Addresses that are told what happens.", no_args_is_help=True)

Webhook = Annotated[int, typer.Argument(help="Its number, see `vcl webhook list`.")]


@app.command()
def add(
    url: Annotated[str, typer.Argument(help="Where to post to: https, and no private address.")],
    event: Annotated[
        list[str] | None,
        typer.Option("--event", "-e", help=f"Of {', '.join(registry.EVENTS)}; repeat it."),
    ] = None,
    owner: Annotated[
        list[str] | None, typer.Option("--owner", help="Only claims of this owner; repeat it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell an address what happens, all events if none is named; shows its secret once."""
    site = open_site()
    with transaction(site.database) as connection:
        webhook, secret = registry.add_webhook(
            connection,
            url,
            current_user(),
            event or (),
            owner or None,
            site.settings.webhook_private,
        )
    if as_json:
        print_json({**asdict(webhook), "secret": secret})
        return
    print(secret)
    stderr.print(
        f"webhook {webhook.id}; keep its secret: it is shown this once. Next: "
        f"vcl webhook test {webhook.id}",
        markup=False,
    )


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Every webhook, what it is told of, and how many messages wait or are dead."""
    with transaction(open_site().database) as connection:
        rows = [asdict(each) for each in registry.list_webhooks(connection)]
    print_rows(rows, as_json, empty="no webhooks yet; make one with `vcl webhook add URL`")


@app.command()
def remove(webhook: Webhook, as_json: AsJson = False) -> None:
    """Tell an address nothing more; what waits for it is dropped."""
    with transaction(open_site().database) as connection:
        registry.remove_webhook(connection, webhook)
    print_outcome(f"webhook {webhook} is told nothing any more", {"removed": webhook}, as_json)


@app.command("test")
def try_webhook(webhook: Webhook, as_json: AsJson = False) -> None:
    """Send a message that says only that the webhook works, and say what was answered."""
    site = open_site()
    with transaction(site.database) as connection:
        asked = deliveries.ask_test(connection, webhook)
    Courier(site.database, site.settings.webhook_private).deliver_next(webhook, asked.id)
    with transaction(site.database) as connection:
        found = deliveries.read_delivery(connection, webhook, asked.id)
    if as_json:
        print_json(asdict(found))
    else:
        stdout.print(found.answer or "another process is sending it", markup=False)
    if found.status != "delivered":
        raise typer.Exit(1)


@app.command("deliveries")
def list_deliveries(
    webhook: Webhook,
    status: Annotated[
        str | None,
        typer.Option("--status", "-s", help=f"Only {', '.join(deliveries.STATUSES)}."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 50,
    after: Annotated[str | None, typer.Option("--after", help="`next` of a page.")] = None,
    as_json: AsJson = False,
) -> None:
    """What was sent or is to be sent, the newest first, with the last answer."""
    with transaction(open_site().database) as connection:
        page = deliveries.list_deliveries(connection, webhook, status, limit=limit, after=after)
    rows = [asdict(each) for each in page.rows]
    if as_json:
        print_json({"deliveries": rows, "next": page.next})
        return
    print_rows(rows, False, empty="nothing was sent")
    if page.next is not None:
        stderr.print(f"there are more: --after {page.next}", markup=False)


@app.command()
def resend(
    webhook: Webhook,
    delivery: Annotated[
        int | None, typer.Argument(help="Its number, see `vcl webhook deliveries`.")
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="All that were given up.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send a message once more, or all dead ones; a worker or `vcl serve` does it."""
    if (delivery is None) != dead:
        raise Refused("name a delivery, or give --dead for all that were given up")
    with transaction(open_site().database) as connection:
        sent = deliveries.resend(connection, webhook, delivery)
    print_outcome(f"{sent} deliveries are sent again", {"resent": sent}, as_json)
