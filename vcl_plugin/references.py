"""Reference videos as people add them: tied to an asset, then sent to be described.

In: a registered video and the asset that it shows. Out: a reference, and work for the workers.
"""

from __future__ import annotations

from collections.abc import Collection

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import Refused
from retrieval.tasks import send
from retrieval.work.messages import INGEST, Message
from vcl_plugin.claims import assets


def add_reference(
    engine: RetrievalEngine,
    video_id: str,
    asset_id: int,
    owners: Collection[str] | None = None,
) -> None:
    """Let a video stand for an asset and be searched against.

    `owners` confines who asks: they learn of no asset of others, not even by a refusal.
    """
    with transaction(engine.database) as connection:
        assets.require_asset(connection, asset_id, owners)
        held_by = assets.find_holder(connection, video_id)
        if held_by not in (None, asset_id) and not assets.is_visible(connection, held_by, owners):
            raise Refused(
                f"video {video_id} is a reference of somebody else already, so it cannot stand "
                f"for asset {asset_id}"
            )
        assets.add_reference(connection, video_id, asset_id)
    send([Message(INGEST, {"video_id": video_id})])
