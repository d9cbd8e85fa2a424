"""Videos that only other descriptors, or other weights of the same, have described.

In: the kind of descriptors that is used now. Out: which videos it has not seen.
"""

from __future__ import annotations

import time

from sqlalchemy import Connection, Engine, text

from retrieval.database import transaction

# A count over all references is asked for by every search, and changes seldom.
COUNT_SECONDS = 30.0

# A file that can be described anew, and descriptors that are all of other kinds.
_OUTDATED = """FROM videos WHERE path IS NOT NULL
    AND EXISTS (SELECT 1 FROM descriptor_sets WHERE video_id = videos.id)
    AND NOT EXISTS (SELECT 1 FROM descriptor_sets
                    WHERE video_id = videos.id AND fingerprint = :fingerprint)"""


def list_videos(connection: Connection, fingerprint: str) -> list[str]:
    """Videos that only other descriptors have described, references first."""
    found = connection.execute(
        text(f"SELECT id {_OUTDATED} ORDER BY is_reference DESC, created_at, id"),
        {"fingerprint": fingerprint},
    )
    return list(found.scalars())


def count_references(connection: Connection, fingerprint: str) -> int:
    """References that a search with descriptors of that kind does not see."""
    return int(
        connection.execute(
            text(f"SELECT count(*) {_OUTDATED} AND is_reference"), {"fingerprint": fingerprint}
        ).scalar_one()
    )


class Unseen:
    """How many references searches do not see, counted anew every now and then."""

    def __init__(self, database: Engine) -> None:
        self.database = database
        self.references, self.known_until = 0, 0.0

    def describe(self, fingerprint: str) -> str | None:
        """What to say of references that only other descriptors than these have described."""
        if time.monotonic() > self.known_until:
            with transaction(self.database) as connection:
                self.references = count_references(connection, fingerprint)
            self.known_until = time.monotonic() + COUNT_SECONDS
        if not self.references:
            return None
        return (
            f"{self.references} references were left out because another descriptor described "
            "them; `vcl ingest --redescribe` describes them anew"
        )
