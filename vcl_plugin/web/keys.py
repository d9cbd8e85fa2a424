"""API keys: who may come in, in which role, and whose claims they see.

In: a name, a role, owners. Out: a key that is shown once, and rows in `api_keys`.
A key is 32 random bytes, so a plain digest keeps it: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from retrieval.errors import NotFound, Refused
from vcl_plugin.claims.claims import ENGINE
from vcl_plugin.claims.rights import find_owner

PREFIX = "vcl_"
# What each role may do. `docs/reference/http.md` has the table of endpoints.
ROLES: Mapping[str, frozenset[str]] = {
    "reader": frozenset({"read"}),
    "reviewer": frozenset({"read", "decide"}),
    "manager": frozenset({"read", "decide", "upload", "manage"}),
    "service": frozenset({"read", "upload"}),
}


@dataclass(frozen=True)
class Viewer:
    """Who asks: the name that histories carry, a role, and the owners they see; None: all."""

    name: str
    role: str
    owners: frozenset[str] | None
    csrf: str = ""  # what a form of a browser's session must send along
    key_id: int = 0

    def may(self, verb: str) -> bool:
        return verb in ROLES[self.role]


def add_key(
    connection: Connection,
    name: str,
    role: str,
    created_by: str,
    owners: Collection[str] | None = None,
) -> str:
    """Make a key and return it; nobody can read it again."""
    if not name.strip() or name == ENGINE or len(name) > 200:
        raise Refused(f"{name[:40]!r} cannot be the name of a key; histories name its owner by it")
    if role not in ROLES:
        raise Refused(f"{role!r} is no role; use one of {', '.join(ROLES)}")
    if owners is not None and not owners:
        raise Refused("a key for no owner could see nothing; name owners, or none for all")
    key = PREFIX + secrets.token_urlsafe(32)
    key_id = connection.execute(
        text("""
        INSERT INTO api_keys (name, digest, role, is_scoped, created_by)
        VALUES (:name, :digest, :role, :is_scoped, :by)
        ON CONFLICT (name) DO NOTHING RETURNING id"""),
        {
            **{"name": name, "digest": digest_key(key), "role": role, "by": created_by},
            "is_scoped": owners is not None,
        },
    ).scalar()
    if key_id is None:
        raise Refused(f"there is a key {name!r} already, or there was; choose another name")
    for owner in sorted(owners or ()):
        connection.execute(
            text("INSERT INTO api_key_owners (key_id, owner_id) VALUES (:key, :owner)"),
            {"key": key_id, "owner": find_owner(connection, owner)},
        )
    return key


def list_keys(connection: Connection) -> list[dict[str, Any]]:
    """Every key that was ever made, without the key itself."""
    rows = connection.execute(
        text("""
        SELECT api_keys.name, role, CASE WHEN is_scoped THEN array(
                   SELECT owners.name FROM api_key_owners
                   JOIN owners ON owners.id = owner_id WHERE key_id = api_keys.id ORDER BY 1) END
                   AS owners, created_by, created_at, used_at, revoked_at
        FROM api_keys ORDER BY api_keys.name""")
    )
    return [dict(row) for row in rows.mappings()]


def revoke_key(connection: Connection, name: str) -> None:
    """Let a key open nothing any more; browsers that logged in with it are out, too."""
    found = connection.execute(
        text("""
        UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE name = :name
        RETURNING id"""),
        {"name": name},
    ).scalar()
    if found is None:
        raise NotFound(f"there is no key {name!r}; `vcl key list` shows them all")
    connection.execute(text("DELETE FROM web_sessions WHERE key_id = :id"), {"id": found})


def count_keys(connection: Connection) -> int:
    found = connection.execute(text("SELECT count(*) FROM api_keys WHERE revoked_at IS NULL"))
    return int(found.scalar_one())


def find_viewer(
    connection: Connection, key: str | None = None, name: str | None = None
) -> Viewer | None:
    """Who has that key, or that name; None: nobody, or it was revoked."""
    row = connection.execute(
        text("""
        SELECT id, name, digest, role, CASE WHEN is_scoped THEN array(
                   SELECT owners.name FROM api_key_owners
                   JOIN owners ON owners.id = owner_id WHERE key_id = api_keys.id) END AS owners,
               used_at IS NULL OR used_at < now() - interval '1 minute' AS is_stale
        FROM api_keys WHERE revoked_at IS NULL
          AND (digest = :digest OR CAST(:digest AS text) IS NULL AND name = :name)"""),
        {"digest": None if key is None else digest_key(key), "name": name},
    ).first()
    if row is None:
        return None
    if row.is_stale:
        connection.execute(
            text("UPDATE api_keys SET used_at = now() WHERE id = :id"), {"id": row.id}
        )
    owners = None if row.owners is None else frozenset(row.owners)
    csrf = hashlib.sha256(f"csrf {row.digest} {row.name}".encode()).hexdigest()
    return Viewer(row.name, row.role, owners, csrf, row.id)


def digest_key(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
