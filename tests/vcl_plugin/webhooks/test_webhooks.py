"""What happens is told to those who asked, signed, at least once, whatever receivers do."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, text

from retrieval.database import transaction
from retrieval.errors import NotFound, Refused
from retrieval.work import searches
from retrieval.work.cancellation import cancel_search
from tests.vcl_plugin.webhooks.conftest import raise_claim
from tests.vcl_plugin.webhooks.receiver import Receiver
from vcl_plugin.claims.decisions import Decision, decide
from vcl_plugin.webhooks import deliveries, registry
from vcl_plugin.webhooks.courier import Courier
from vcl_plugin.webhooks.deliveries import PAUSES, Delivery

Receive = Callable[[], Receiver]


def add(db: Engine, url: str, *events: str, owners: list[str] | None = None) -> tuple[int, str]:
    with transaction(db) as connection:
        webhook, secret = registry.add_webhook(
            connection, url, "ana", events, owners, allows_private=True
        )
    return webhook.id, secret


def read(db: Engine, webhook: int) -> list[Delivery]:
    """Its deliveries, the oldest first."""
    with transaction(db) as connection:
        return list(deliveries.list_deliveries(connection, webhook).rows)[::-1]


def send_all(db: Engine, webhook: int, **options: Any) -> None:
    """All that is due now, by one sender."""
    courier = Courier(db, allows_private=True, **options)
    while courier.deliver_next(webhook):
        pass


def pass_time(db: Engine) -> None:
    """Let whatever waits be due."""
    with transaction(db) as connection:
        connection.execute(text("UPDATE webhook_deliveries SET due_at = now()"))


@contextmanager
def running(db: Engine, **options: Any) -> Iterator[None]:
    courier = Courier(db, allows_private=True, **options)
    courier.start()
    try:
        yield
    finally:
        courier.stop()


def test_a_claim_is_told_from_its_raising_to_its_release(db: Engine, receive: Receive) -> None:
    receiver = receive()
    webhook, _ = add(db, receiver.url)
    claim = raise_claim(db, "upload")
    with transaction(db) as connection:
        decide(connection, claim, Decision("release", "ana", "fair_use"))
    with running(db):
        told = [json.loads(each.body) for each in receiver.wait(2)]
    assert [each["type"] for each in told] == ["claim.raised", "claim.changed"]
    raised, released = (each["data"] for each in told)
    assert raised["claim_id"] == released["claim_id"] == claim
    assert (raised["owner"], raised["query_id"]) == ("Northlight", "upload")
    assert (raised["uploader"], raised["seconds"]) == ("by upload", 10.0)
    assert (released["status"], released["reason"]) == ("released", "fair_use")
    assert [each.status for each in read(db, webhook)] == ["delivered", "delivered"]


def test_the_signature_is_what_standard_webhooks_says(db: Engine, receive: Receive) -> None:
    receiver = receive()
    _, secret = add(db, receiver.url)
    raise_claim(db, "upload")
    with running(db):
        [message] = receiver.wait(1)
    name, moment = message.headers["webhook-id"], message.headers["webhook-timestamp"]
    # Worked out here from the text of the standard, by none of our functions.
    assert secret.startswith("whsec_")
    key = base64.b64decode(secret[len("whsec_") :])
    assert len(key) >= 24
    content = name.encode() + b"." + moment.encode() + b"." + message.body
    expected = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    assert message.headers["webhook-signature"] == f"v1,{expected}"
    assert message.headers["content-type"] == "application/json"
    assert set(json.loads(message.body)) == {"type", "timestamp", "data"}


def test_nothing_is_told_of_what_was_rolled_back(db: Engine, receive: Receive) -> None:
    webhook, _ = add(db, receive().url)
    claim = raise_claim(db, "upload")
    with db.connect() as connection:
        decide(connection, claim, Decision("release", "ana", "fair_use"))
        connection.rollback()
    assert [each.event for each in read(db, webhook)] == ["claim.raised"]


def test_a_search_is_told_when_it_ends_also_when_it_is_cancelled(
    db: Engine, receive: Receive
) -> None:
    receiver = receive()
    add(db, receiver.url, "search.finished")
    raise_claim(db, "upload")
    with transaction(db) as connection:
        search = searches.create_search(connection, "upload", "s")
        cancel_search(connection, search, "ana")
    with running(db):
        [message] = receiver.wait(1)
    told = json.loads(message.body)
    assert told["type"] == "search.finished"
    assert (told["data"]["search_id"], told["data"]["status"]) == ("s", "cancelled")


def test_a_webhook_of_one_owner_hears_nothing_of_another(db: Engine, receive: Receive) -> None:
    receiver = receive()
    webhook, _ = add(db, receiver.url, owners=["Northlight"])
    raise_claim(db, "theirs", "tram")
    raise_claim(db, "ours", "harbour")
    with transaction(db) as connection:
        for name, by in (("a", "bob"), ("b", "ana")):  # the webhook is ana's
            cancel_search(connection, searches.create_search(connection, "ours", name, by), "ana")
    send_all(db, webhook)
    told = [json.loads(each.body)["data"] for each in receiver.messages]
    assert [each.get("query_id") for each in told] == ["ours", "ours"]
    assert [each.get("search_id") for each in told] == [None, "b"]


def test_a_webhook_of_others_is_not_there(db: Engine, receive: Receive) -> None:
    webhook, _ = add(db, receive().url, owners=["Ostrava"])
    everybodys, _ = add(db, receive().url)
    mine = ["Northlight"]
    with transaction(db) as connection:
        assert registry.list_webhooks(connection, mine) == []
        for each in (webhook, everybodys, 999):
            for ask in (
                lambda n: registry.read_webhook(connection, n, mine),
                lambda n: registry.remove_webhook(connection, n, mine),
                lambda n: deliveries.list_deliveries(connection, n, owners=mine),
                lambda n: deliveries.resend(connection, n, owners=mine),
                lambda n: deliveries.ask_test(connection, n, mine),
            ):
                with pytest.raises(NotFound, match=f"there is no webhook {each};"):
                    ask(each)


def test_a_receiver_that_fails_is_tried_again_later_with_the_same_id(
    db: Engine, receive: Receive
) -> None:
    receiver = receive()
    webhook, _ = add(db, receiver.url)
    raise_claim(db, "upload")
    receiver.status = 500
    send_all(db, webhook)
    [failed] = read(db, webhook)
    assert (failed.status, failed.attempts, failed.answer) == ("waiting", 1, "HTTP 500")
    assert len(receiver.messages) == 1, "the next attempt is not due yet"
    receiver.status = 200
    pass_time(db)
    send_all(db, webhook)
    [arrived] = read(db, webhook)
    assert (arrived.status, arrived.attempts, arrived.answer) == ("delivered", 2, "HTTP 200")
    first, second = receiver.messages
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


def test_what_fails_at_every_attempt_is_dead_is_shown_and_can_be_sent_again(
    db: Engine, receive: Receive
) -> None:
    receiver = receive()
    receiver.status = 500
    webhook, _ = add(db, receiver.url)
    raise_claim(db, "upload")
    for _ in range(len(PAUSES) + 3):
        pass_time(db)
        send_all(db, webhook)
    assert len(receiver.messages) == len(PAUSES) + 1
    with transaction(db) as connection:
        [dead] = deliveries.list_deliveries(connection, webhook, "dead").rows
        assert (dead.attempts, dead.answer) == (len(PAUSES) + 1, "HTTP 500")
        assert registry.read_webhook(connection, webhook).dead == 1
        assert deliveries.resend(connection, webhook) == 1
    receiver.status = 200
    send_all(db, webhook)
    assert [each.status for each in read(db, webhook)] == ["delivered"]
    with transaction(db) as connection:
        assert deliveries.resend(connection, webhook) == 0, "nothing is dead any more"
        assert deliveries.resend(connection, webhook, dead.id) == 1, "by number, whatever it is"
        with pytest.raises(NotFound, match=f"webhook {webhook} has no delivery 999"):
            deliveries.resend(connection, webhook, 999)


def test_a_receiver_that_is_gone_for_good_is_asked_once(db: Engine, receive: Receive) -> None:
    receiver = receive()
    receiver.status = 410
    webhook, _ = add(db, receiver.url)
    raise_claim(db, "upload")
    send_all(db, webhook)
    assert [(each.status, each.answer) for each in read(db, webhook)] == [("dead", "HTTP 410")]


def test_a_redirect_is_not_followed(db: Engine, receive: Receive) -> None:
    inside, receiver = receive(), receive()
    receiver.status, receiver.location = 302, inside.url
    webhook, _ = add(db, receiver.url)
    raise_claim(db, "upload")
    send_all(db, webhook)
    [failed] = read(db, webhook)
    assert failed.answer == "HTTP 302: redirects are not followed"
    assert inside.messages == []


def test_one_receiver_that_never_ends_holds_up_no_other(db: Engine, receive: Receive) -> None:
    slow, good = receive(), receive()
    slow.drips = True
    slow_hook, _ = add(db, slow.url)
    add(db, good.url)
    for number in range(5):
        raise_claim(db, f"upload {number}")
    with running(db, seconds=30.0):
        slow.wait(1)
        good.wait(5)
        assert len(slow.messages) == 1, "its own lane waits"
    assert {each.status for each in read(db, slow_hook)} == {"waiting"}


def test_an_attempt_ends_in_time_however_its_bytes_drip(db: Engine, receive: Receive) -> None:
    receiver = receive()
    receiver.drips = True
    webhook, _ = add(db, receiver.url)
    raise_claim(db, "upload")
    send_all(db, webhook, seconds=0.5)
    [failed] = read(db, webhook)
    assert failed.answer == "no answer within 0.5 seconds"


def test_of_an_answer_only_the_status_is_kept(db: Engine, receive: Receive) -> None:
    receiver = receive()
    receiver.status, receiver.body = 500, b"the password is swordfish" * 100_000
    webhook, _ = add(db, receiver.url)
    raise_claim(db, "upload")
    send_all(db, webhook)
    assert [each.answer for each in read(db, webhook)] == ["HTTP 500"]


def test_a_port_where_nobody_listens_is_an_answer_like_others(db: Engine) -> None:
    webhook, _ = add(db, "http://127.0.0.1:1/")
    raise_claim(db, "upload")
    send_all(db, webhook)
    [failed] = read(db, webhook)
    assert failed.status == "waiting"
    assert "ConnectionRefusedError" in str(failed.answer)


def test_a_name_that_leads_elsewhere_by_now_is_not_followed(db: Engine, receive: Receive) -> None:
    receiver = receive()
    port = receiver.url.split(":")[2].split("/")[0]
    with transaction(db) as connection:  # when it was added the name was public
        webhook, _ = registry.add_webhook(
            connection,
            f"https://rebinding.example:{port}/",
            "ana",
            resolve=lambda host, port: ["93.184.216.34"],
        )
    raise_claim(db, "upload")
    courier = Courier(db, allows_private=False, resolve=lambda host, port: ["127.0.0.1"])
    answer = courier.deliver_next(webhook.id)
    assert answer is not None
    assert "'rebinding.example' is in a private range" in answer.said
    assert receiver.messages == []


def test_the_address_that_was_checked_is_the_one_that_is_called(
    db: Engine, receive: Receive
) -> None:
    receiver = receive()
    port = receiver.url.split(":")[2].split("/")[0]
    webhook, _ = add(db, receiver.url)
    with transaction(db) as connection:
        connection.execute(
            text("UPDATE webhooks SET url = :url"), {"url": f"http://named.example:{port}/x"}
        )
    raise_claim(db, "upload")
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    send_all(db, webhook, resolve=resolve)
    [message] = receiver.messages
    assert asked == ["named.example"], "looked up once, and by us alone"
    assert message.headers["host"] == f"named.example:{port}"


def test_what_a_sender_had_in_hand_when_it_died_is_sent_by_another(
    db: Engine, receive: Receive
) -> None:
    receiver = receive()
    webhook, _ = add(db, receiver.url)
    raise_claim(db, "upload")
    with transaction(db) as connection:
        assert deliveries.take_delivery(connection, webhook) is not None
        assert deliveries.take_delivery(connection, webhook) is None, "it is in hand"
    send_all(db, webhook)
    assert receiver.messages == []
    pass_time(db)  # its lease runs out
    send_all(db, webhook)
    assert len(receiver.messages) == 1


def test_two_couriers_send_each_message_once(db: Engine, receive: Receive) -> None:
    receiver = receive()
    add(db, receiver.url)
    for number in range(12):
        raise_claim(db, f"upload {number}")
    with running(db), running(db):
        receiver.wait(12)
    names = [each.headers["webhook-id"] for each in receiver.messages]
    assert len(names) == len(set(names)) == 12


def test_a_removed_webhook_is_told_nothing_and_its_secret_is_forgotten(
    db: Engine, receive: Receive
) -> None:
    receiver = receive()
    webhook, _ = add(db, receiver.url)
    raise_claim(db, "before")
    with transaction(db) as connection:
        registry.remove_webhook(connection, webhook)
    raise_claim(db, "after")
    send_all(db, webhook)
    with transaction(db) as connection:
        assert deliveries.list_due(connection) == []
        assert connection.execute(text("SELECT secret FROM webhooks")).scalar_one() == ""
        assert connection.execute(text("SELECT count(*) FROM webhook_events")).scalar_one() == 1
    assert receiver.messages == []


@pytest.mark.parametrize(
    ("url", "events", "owners", "error", "words"),
    [
        ("https://10.0.0.1/", [], None, Refused, "private range"),
        ("http://127.0.0.1/", [], None, Refused, "private range"),
        ("https://1.1.1.1/", ["claim.eaten"], None, Refused, "'claim.eaten' is no event"),
        ("https://1.1.1.1/", [], ["Nobody"], NotFound, "there is no owner 'Nobody'"),
        ("https://1.1.1.1/", [], [], Refused, "for no owner"),
    ],
)
def test_a_webhook_that_makes_no_sense_is_refused_with_the_reason(
    db: Engine, url: str, events: list[str], owners: list[str], error: type, words: str
) -> None:
    with transaction(db) as connection, pytest.raises(error, match=words):
        registry.add_webhook(connection, url, "ana", events, owners)


def test_what_arrived_long_ago_is_forgotten_and_what_is_dead_is_not(
    db: Engine, receive: Receive
) -> None:
    receiver = receive()
    webhook, _ = add(db, receiver.url)
    raise_claim(db, "one")
    raise_claim(db, "two")
    with transaction(db) as connection:
        connection.execute(
            text("""
            UPDATE webhook_deliveries
            SET status = CASE WHEN id = 1 THEN 'delivered' ELSE 'dead' END,
                delivered_at = CASE WHEN id = 1 THEN now() - interval '31 days' END""")
        )
        connection.execute(text("UPDATE webhook_events SET at = now() - interval '31 days'"))
        deliveries.forget_delivered(connection)
        left = connection.execute(text("SELECT count(*) FROM webhook_events")).scalar_one()
    assert [each.status for each in read(db, webhook)] == ["dead"]
    assert left == 1
