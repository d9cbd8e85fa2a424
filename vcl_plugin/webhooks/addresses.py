"""Addresses of webhooks: where a server may be sent to, and where it may not.

In: a URL that somebody gave. Out: the IP addresses that may be called for it, or `Refused`.
A name may lead elsewhere tomorrow, so it is looked up for each attempt, and the connection is made
to the very address that was checked.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from retrieval.errors import Refused

LETTERS = 2000
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # the last 32 bits are an IPv4 address
Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Address:
    """A URL taken apart."""

    scheme: str
    host: str
    port: int
    path: str  # with the query

    @property
    def header(self) -> str:
        """What the header `Host` says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.scheme == "https" else 80
        return host if self.port == usual else f"{host}:{self.port}"


def read_address(url: str) -> Address:
    """Take a URL apart, unless it is none that a webhook can have.

    >>> read_address("https://example.com/hook?a=1")
    Address(scheme='https', host='example.com', port=443, path='/hook?a=1')
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = (parts.hostname or "").encode("idna").decode("ascii")
    except (ValueError, UnicodeError):
        raise _bad(url, "it cannot be read") from None
    if parts.scheme not in ("https", "http") or not host:
        raise _bad(url, "it does not begin with https:// and a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise _bad(url, "it holds a user, a password or a fragment")
    if len(url) > LETTERS or any(not 32 < ord(each) < 127 for each in url):
        raise _bad(url, f"it has more than {LETTERS} letters, or others than ASCII; escape them")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, host, port, path)


def resolve_host(host: str, port: int) -> Sequence[str]:
    """The IP addresses of a host, as the system's resolver has them now."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def find_targets(
    address: Address, allows_private: bool, resolve: Resolve = resolve_host
) -> Sequence[str]:
    """The IP addresses that may be called; `Refused` if there is none."""
    try:
        found = resolve(address.host, address.port)
    except (OSError, UnicodeError):
        raise Refused(
            f"the host {address.host!r} has no address; correct its name", code="bad_address"
        ) from None
    public = [each for each in found if is_public(each)]
    if not allows_private and not public:
        raise Refused(
            f"the host {address.host!r} is in a private range, where webhooks are not sent; use a "
            "public address, or allow these with VCL_WEBHOOK_PRIVATE=1",
            code="bad_address",
        )
    if address.scheme == "http" and (public or not allows_private):
        raise Refused(
            f"http://{address.host} would carry claims in the clear; use https", code="bad_address"
        )
    return list(found) if allows_private else public


def is_public(address: str) -> bool:
    """Whether everybody may be sent to an IP address; IPv4 within IPv6 is looked at as such.

    >>> is_public("93.184.216.34"), is_public("10.0.0.1"), is_public("::ffff:127.0.0.1")
    (True, False, False)
    >>> is_public("169.254.169.254"), is_public("64:ff9b::a9fe:a9fe"), is_public("2002:7f00:1::")
    (False, False, False)
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        within = ip.ipv4_mapped or ip.sixtofour
        if ip in _NAT64:
            within = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if within is not None:
            return is_public(str(within))
        if ip.teredo is not None:
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _bad(url: str, why: str) -> Refused:
    return Refused(f"{url[:100]!r} is no address for a webhook: {why}", code="bad_address")
