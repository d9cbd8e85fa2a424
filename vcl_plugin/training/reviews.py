"""What reviewers decided about claims, as weak labels to train on.

In: the database. Out: a folder of pairs of which only "copy or not" is known, with descriptors.

A confirmed claim says that its pairs are copies; so does one released because the copy was allowed,
for the footage is the same. Only "misidentified" says that there was no copy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sqlalchemy import Connection, text

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import RetrievalError
from vcl_plugin.evaluation.folder import LabelledPair, write_folder
from vcl_plugin.training.datasets import write_weak

PairKey = tuple[str, str]


def read_decisions(connection: Connection) -> dict[PairKey, bool]:
    """Pairs that a person has judged, and whether they are copies.

    A claim that a policy alone moved is nobody's judgement, and one released without a reason says
    nothing about the footage.
    """
    rows = connection.execute(
        text("""
        SELECT DISTINCT segments.query_id, segments.reference_id,
               claims.status <> 'released' OR claims.reason <> 'misidentified' AS is_copy
        FROM claims
        JOIN segments ON segments.claim_id = claims.id
        WHERE (claims.status IN ('active', 'upheld')
               OR claims.status = 'released' AND claims.reason IS NOT NULL)
          AND EXISTS (SELECT 1 FROM claim_decisions
                      WHERE claim_decisions.claim_id = claims.id
                        AND claim_decisions.to_status = claims.status)
        ORDER BY 1, 2""")
    )
    return {(row.query_id, row.reference_id): bool(row.is_copy) for row in rows}


def export_labels(engine: RetrievalEngine, out: Path) -> dict[str, int]:
    """Write the judged pairs as a folder of weak labels; returns how many of each kind.

    A pair whose two videos have no descriptors of one kind any more, or none in the store and the
    media roots, is left out and counted.
    """
    with transaction(engine.database) as connection:
        decisions = read_decisions(connection)
        paths = {key: _find_paths(connection, key) for key in decisions}
    features: dict[str, np.ndarray] = {}
    kept: dict[PairKey, bool] = {}
    for key, is_copy in decisions.items():
        if not paths[key]:
            continue
        try:
            for video, path in zip(key, paths[key], strict=True):
                if video not in features:
                    stored = engine.store.read(path)
                    features[video] = np.asarray(stored.descriptors, np.float32)
        except RetrievalError:
            continue
        kept[key] = is_copy
    write_folder(out, features, [LabelledPair(*key, truth=()) for key in kept])
    write_weak(out, kept)
    return {
        "copies": sum(kept.values()),
        "others": len(kept) - sum(kept.values()),
        "without_descriptors": len(decisions) - len(kept),
    }


def _find_paths(connection: Connection, key: PairKey) -> tuple[str, ...]:
    """Descriptor files of both videos, made by one descriptor: the latest that both have."""
    row = connection.execute(
        text("""
        SELECT query.path AS query, reference.path AS reference
        FROM descriptor_sets AS query
        JOIN descriptor_sets AS reference USING (fingerprint)
        WHERE query.video_id = :query AND reference.video_id = :reference
        ORDER BY reference.created_at DESC LIMIT 1"""),
        {"query": key[0], "reference": key[1]},
    ).first()
    return () if row is None else (row.query, row.reference)
