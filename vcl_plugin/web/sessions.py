"""Sessions of browsers: a login with a key becomes a cookie that scripts cannot read.

In: a key, or the word of a cookie. Out: a viewer. The word is random and kept as a digest.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from sqlalchemy import Connection, text

from vcl_plugin.web.keys import Viewer, digest_key, find_viewer

COOKIE = "vcl_session"
HOURS = 12


def open_session(connection: Connection, viewer: Viewer) -> str:
    """A session of that viewer; returns the word for the cookie. Sessions that ended go."""
    connection.execute(text("DELETE FROM web_sessions WHERE expires_at < now()"))
    word = secrets.token_urlsafe(32)
    connection.execute(
        text("""
        INSERT INTO web_sessions (digest, key_id, csrf, expires_at)
        VALUES (:digest, :key, :csrf, now() + :hours * interval '1 hour')"""),
        {
            **{"digest": digest_key(word), "key": viewer.key_id},
            **{"csrf": secrets.token_urlsafe(32), "hours": HOURS},
        },
    )
    return word


def read_session(connection: Connection, word: str) -> Viewer | None:
    """Who logged in; None if the session ended or its key was revoked."""
    row = connection.execute(
        text("""
        SELECT api_keys.name, web_sessions.csrf FROM web_sessions
        JOIN api_keys ON api_keys.id = key_id
        WHERE web_sessions.digest = :digest AND expires_at > now()"""),
        {"digest": digest_key(word)},
    ).first()
    if row is None:
        return None
    viewer = find_viewer(connection, name=row.name)
    return None if viewer is None else replace(viewer, csrf=row.csrf)


def close_session(connection: Connection, word: str) -> None:
    connection.execute(
        text("DELETE FROM web_sessions WHERE digest = :digest"), {"digest": digest_key(word)}
    )
