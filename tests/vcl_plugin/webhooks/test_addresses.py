"""Where webhooks may be sent to: nowhere within, whatever the address looks like."""

from __future__ import annotations

import pytest

from retrieval.errors import Refused
from vcl_plugin.webhooks.addresses import find_targets, is_public, read_address

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1"),
        *("::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::", "2001:0:a00:1::1"),
    ],
)
def test_an_address_within_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", [PUBLIC, "2606:2800:220:1::1", f"::ffff:{PUBLIC}"])
def test_an_address_of_the_world_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com/hook", "ftp://example.com", "file:///etc/passwd", "https://"),
        *("https://ana:secret@example.com/", "https://example.com/#part", "https://[::1"),
        *("https://example.com:99999/", "https://example.com/a b", "https://example.com/\r\nX: y"),
        "https://example.com/" + "x" * 2000,
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="is no address for a webhook") as caught:
        read_address(url)
    assert caught.value.code == "bad_address"


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1/", "https://localhost/", "https://[::1]/", "https://2130706433/"],
)
def test_an_address_in_a_private_range_is_refused_unless_allowed(url: str) -> None:
    address = read_address(url)
    with pytest.raises(Refused, match="private range") as caught:
        find_targets(address, allows_private=False)
    assert caught.value.code == "bad_address"
    assert set(find_targets(address, allows_private=True)) & {"127.0.0.1", "::1"}


def test_of_a_host_with_several_addresses_only_the_public_ones_are_called() -> None:
    address = read_address("https://example.com/")
    found = find_targets(address, False, lambda host, port: ["10.0.0.1", PUBLIC])
    assert found == [PUBLIC]


def test_nothing_is_sent_in_the_clear_through_the_world() -> None:
    address = read_address("http://example.com/")
    for allows_private in (False, True):
        with pytest.raises(Refused, match="in the clear; use https"):
            find_targets(address, allows_private, lambda host, port: [PUBLIC])


def test_a_host_that_nobody_knows_is_told_as_a_sentence() -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    with pytest.raises(Refused, match=r"'nowhere\.example' has no address"):
        find_targets(read_address("https://nowhere.example/"), False, resolve)
