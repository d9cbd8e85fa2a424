"""One attempt to send a message: a POST to the very address that was checked, with an end.

In: a URL, headers, a body. Out: what the receiver answered, in a few words, and whether it is good.
Redirects are not followed, and the answer's body is not read: it could be large, slow, or that of
a page that whoever made the webhook must not see.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retrieval.errors import Refused
from vcl_plugin.webhooks.addresses import Address, Resolve, find_targets, read_address

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 15.0  # of one attempt, however its bytes drip


@dataclass(frozen=True, slots=True)
class Answer:
    """How an attempt ended."""

    is_good: bool  # 2xx
    said: str
    is_hopeless: bool = False  # 410: the receiver wants no more


def send_message(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    allows_private: bool,
    resolve: Resolve,
    seconds: float = TOTAL_SECONDS,
) -> Answer:
    """Post once. Whatever goes wrong is an answer, never an error."""
    try:
        address = read_address(url)
        targets = find_targets(address, allows_private, resolve)
        return _post(address, targets, headers, body, seconds)
    except Refused as error:
        return Answer(False, str(error))
    except TimeoutError:
        return Answer(False, f"no answer within {seconds:g} seconds")
    except (OSError, ssl.SSLError, http.client.HTTPException, ValueError) as error:
        return Answer(False, f"{type(error).__name__}: {error}"[:300])


def _post(
    address: Address,
    targets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    seconds: float,
) -> Answer:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=seconds)
    connection.sock = sock = _connect(address, targets)
    sock.settimeout(seconds)
    is_over = threading.Event()

    def cut() -> None:
        is_over.set()
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already

    alarm = threading.Timer(seconds, cut)  # a timeout of the socket begins anew with every byte
    alarm.daemon = True
    alarm.start()
    try:
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
        connection.request(
            "POST",
            address.path,
            body,
            {
                **{"Host": address.header, "Content-Type": "application/json"},
                **{"User-Agent": "vcl", "Connection": "close"},
                **headers,
            },
        )
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        if is_over.is_set():
            raise TimeoutError from None
        raise
    finally:
        alarm.cancel()
        connection.close()
    if is_over.is_set():  # a header that was cut looks like one that is complete
        raise TimeoutError
    if 300 <= status < 400:
        return Answer(False, f"HTTP {status}: redirects are not followed")
    return Answer(200 <= status < 300, f"HTTP {status}", is_hopeless=status == 410)


def _connect(address: Address, targets: Sequence[str]) -> socket.socket:
    """A connection to the first target that takes one; the certificate must be the host's."""
    failure: OSError = OSError(f"the host {address.host!r} has no address")
    for target in targets:
        try:
            sock = socket.create_connection((target, address.port), CONNECT_SECONDS)
        except OSError as error:
            failure = error
            continue
        if address.scheme == "http":
            return sock
        return ssl.create_default_context().wrap_socket(
            sock, server_hostname=address.host, do_handshake_on_connect=False
        )
    raise failure
