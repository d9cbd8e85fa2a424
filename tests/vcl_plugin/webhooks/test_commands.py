"""Webhooks on the command line and over HTTP: the secret is shown once, dead letters are shown."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retrieval.database import transaction
from tests.vcl_plugin.cli.conftest import Said
from tests.vcl_plugin.web.conftest import Desk
from tests.vcl_plugin.webhooks.receiver import Receiver
from vcl_plugin.webhooks import deliveries
from vcl_plugin.webhooks.courier import Courier

ROOT = Path(__file__).parent.parent.parent.parent
HOOKS = "/api/v1/webhooks"
Run = Callable[..., Said]
Receive = Callable[[], Receiver]


@pytest.fixture
def anywhere(site_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCL_WEBHOOK_PRIVATE", "1")


def checker() -> Callable[..., bool]:
    """The function of the how-to, as a reader would copy it."""
    page = (ROOT / "docs/how-to/integrate.md").read_text(encoding="utf-8")
    [source] = [each for each in re.findall(r"```python\n(.*?)```", page, re.S) if "hmac" in each]
    names: dict[str, Any] = {}
    exec(compile(source, "integrate.md", "exec"), names)
    checked: Callable[..., bool] = names["is_ours"]
    return checked


def test_a_webhook_is_added_tried_listed_and_removed(
    anywhere: None,
    vcl: Run,
    receive: Receive,
) -> None:
    receiver = receive()
    added = vcl("webhook", "add", receiver.url, "--event", "claim.raised")
    secret = added.out.strip()
    assert secret.startswith("whsec_")
    assert "shown this once" in added.err
    tried = vcl("webhook", "test", 1)
    assert (tried.code, tried.out.strip()) == (0, "HTTP 204")
    [message] = receiver.messages
    assert json.loads(message.body)["type"] == "webhook.test"
    is_ours = checker()
    assert is_ours(secret, message.headers, message.body)
    assert not is_ours(secret, message.headers, message.body + b" ")
    listed = vcl("webhook", "list", "--json")
    assert secret not in listed.out
    [row] = json.loads(listed.out)
    assert (row["url"], row["events"], row["owners"]) == (receiver.url, ["claim.raised"], None)
    assert vcl("webhook", "remove", 1).code == 0
    assert "no webhooks yet" in vcl("webhook", "list").err
    gone = vcl("webhook", "remove", 1)
    assert gone.code == 1
    assert "there is no webhook 1" in gone.err


def test_dead_letters_are_shown_and_sent_again(
    anywhere: None,
    vcl: Run,
    receive: Receive,
) -> None:
    receiver = receive()
    receiver.status = 410
    vcl("webhook", "add", receiver.url)
    assert vcl("webhook", "test", 1).code == 1
    shown = vcl("webhook", "deliveries", 1, "--status", "dead")
    assert "HTTP 410" in shown.out
    assert vcl("webhook", "resend", 1).code == 1, "one by number, or --dead"
    assert "1 deliveries are sent again" in vcl("webhook", "resend", 1, "--dead").out
    [row] = json.loads(vcl("webhook", "deliveries", 1, "--json").out)["deliveries"]
    assert (row["status"], row["attempts"]) == ("waiting", 0)


def test_a_private_address_is_refused_with_what_to_do(
    site_environment: None,
    vcl: Run,
) -> None:
    said = vcl("webhook", "add", "https://192.168.0.7/hook")
    assert said.code == 1
    assert "private range" in said.err
    assert "VCL_WEBHOOK_PRIVATE" in said.err
    assert "(bad_address)" in said.err


def test_over_http_the_secret_is_in_the_first_answer_and_in_no_other(
    anywhere: None,
    desk: Desk,
    receive: Receive,
) -> None:
    receiver, me = receive(), desk.as_("manager")
    made = desk.client.post(HOOKS, headers=me, json={"url": receiver.url})
    assert made.status_code == 201
    number, secret = made.json()["id"], made.json()["secret"]
    for path in ("", f"/{number}", f"/{number}/deliveries"):
        answer = desk.client.get(HOOKS + path, headers=me)
        assert answer.status_code == 200
        assert secret not in answer.text
    tried = desk.client.post(f"{HOOKS}/{number}/test", headers=me)
    assert (tried.status_code, tried.json()["status"]) == (202, "waiting")
    answer = Courier(desk.engine.database, True).deliver_next(number)
    assert answer is not None
    assert answer.is_good
    page = desk.client.get(f"{HOOKS}/{number}/deliveries", headers=me).json()
    assert [each["status"] for each in page["deliveries"]] == ["delivered"]
    again = desk.client.post(
        f"{HOOKS}/{number}/deliveries/{page['deliveries'][0]['id']}/resend", headers=me
    )
    assert again.json() == {"resent": 1}
    assert desk.client.post(f"{HOOKS}/{number}/resend", headers=me).json() == {"resent": 0}
    assert desk.client.delete(f"{HOOKS}/{number}", headers=me).status_code == 204
    assert desk.client.get(f"{HOOKS}/{number}", headers=me).status_code == 404


def test_over_http_webhooks_are_for_managers_and_their_owners(
    anywhere: None,
    desk: Desk,
    receive: Receive,
) -> None:
    body = {"url": receive().url}
    for role in ("reader", "reviewer", "service"):
        answer = desk.client.post(HOOKS, headers=desk.as_(role), json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    ours = desk.as_("manager of Northlight")
    made = desk.client.post(HOOKS, headers=ours, json=body).json()
    assert made["owners"] == ["Northlight"], "none named: those that the key sees"
    theirs = desk.client.post(HOOKS, headers=ours, json={**body, "owners": ["Ostrava"]})
    nobodys = desk.client.post(HOOKS, headers=ours, json={**body, "owners": ["Nobody"]})
    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.text.replace("Ostrava", "Nobody") == nobodys.text
    others = desk.as_("manager of Ostrava")
    assert desk.client.get(HOOKS, headers=others).json() == []
    for path in (f"/{made['id']}", f"/{made['id']}/deliveries"):
        assert desk.client.get(HOOKS + path, headers=others).status_code == 404
    assert len(desk.client.get(HOOKS, headers=desk.as_("manager")).json()) == 1


def test_a_decision_over_http_reaches_a_receiver(
    anywhere: None,
    desk: Desk,
    receive: Receive,
) -> None:
    receiver = receive()
    with transaction(desk.engine.database) as connection:
        assert deliveries.list_due(connection) == [], "nobody listened yet"
    headers = desk.as_("manager of Northlight")
    desk.client.post(HOOKS, headers=headers, json={"url": receiver.url})
    for name in ("ten", "forty"):
        desk.client.post(
            f"/api/v1/claims/{desk.claims[name]}/decisions",
            headers=desk.as_("reviewer"),
            json={"verb": "confirm"},
        )
    courier = Courier(desk.engine.database, True)
    while courier.deliver_next(1):
        pass
    [message] = receiver.messages
    told = json.loads(message.body)
    assert told["type"] == "claim.changed"
    assert told["data"]["claim_id"] == desk.claims["ten"]
    assert abs(int(message.headers["webhook-timestamp"]) - time.time()) < 300
