"""Signatures of webhooks, after Standard Webhooks (version v1: HMAC-SHA256).

In: a secret, and what is sent. Out: the headers that let a receiver know who sent it, and when.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
SECRET_BYTES = 32


def make_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def name_message(secret: str, event_id: int) -> str:
    """The id of a message: the same for every attempt, and no count of events of others.

    >>> name_message("whsec_c2VjcmV0", 7) == name_message("whsec_c2VjcmV0", 7)
    True
    """
    digest = hmac.new(_key(secret), f"event {event_id}".encode(), hashlib.sha256)
    return f"msg_{digest.hexdigest()[:32]}"


def sign_message(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers. The signature covers id, time and body.

    >>> sign_message("whsec_c2VjcmV0", "msg_1", 1700000000, b"{}")["webhook-signature"]
    'v1,A5oIrJxXPB/PkULSoVu0e4khvPiqpF9vljmhkSKg0FI='
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(PREFIX))
