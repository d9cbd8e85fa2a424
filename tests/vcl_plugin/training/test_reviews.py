"""A reviewer's decisions become weak labels, and only those that say something of the footage."""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection, text

from retrieval.database import connect, transaction
from retrieval.engine import RetrievalEngine
from retrieval.settings import Settings
from tests.vcl_plugin.world import add_reference, add_upload, record, segment
from vcl_plugin.claims.claims import decide_claim, list_claims
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.training.pairs import FolderPairs
from vcl_plugin.training.reviews import export_labels, read_decisions


def describe(connection: Connection, folder, *names: str) -> None:
    for number, name in enumerate(names):
        rows = np.random.default_rng(number).standard_normal((20, 256)).astype(np.float32)
        np.save(folder / f"{name}.npy", rows)
        connection.execute(
            text("""
            INSERT INTO descriptor_sets (video_id, fingerprint, path, frames, dimension)
            VALUES (:id, 'test', :path, 20, 256)"""),
            {"id": name, "path": str(folder / f"{name}.npy")},
        )


def claim_on(connection: Connection, upload: str) -> int:
    add_upload(connection, upload)
    record(connection, upload, "film", segment(0, 10))
    settle_claims(connection, upload)
    (claim,) = [row for row in list_claims(connection) if row["query_id"] == upload]
    return int(claim["id"])


def test_decided_claims_are_exported_as_weak_labels(database: str, tmp_path) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        decide_claim(connection, claim_on(connection, "copy"), "active", "ana")
        wrong = claim_on(connection, "wrong")
        decide_claim(connection, wrong, "released", "ana", "misidentified")
        allowed = claim_on(connection, "allowed")
        decide_claim(connection, allowed, "released", "ana", "authorised")
        silent = claim_on(connection, "silent")
        decide_claim(connection, silent, "released", "ana")
        claim_on(connection, "undecided")
        assert read_decisions(connection) == {
            ("copy", "film"): True,
            ("allowed", "film"): True,
            ("wrong", "film"): False,
        }
        describe(connection, tmp_path, "film", "copy", "wrong")
    engine = RetrievalEngine(Settings(home=tmp_path / "home"), connect(database))
    counts = export_labels(engine, tmp_path / "out")
    assert counts == {"copies": 1, "others": 1, "without_descriptors": 1}
    pairs = FolderPairs([tmp_path / "out"], knows_boxes=False)
    labels = {pair.key.split("/")[-2]: pair for pair in (pairs.pair(0), pairs.pair(1))}
    assert labels["copy"].is_copy
    assert labels["copy"].boxes is None
    assert labels["wrong"].is_copy is False


def test_descriptors_outside_the_media_roots_are_not_exported(database: str, tmp_path) -> None:
    (tmp_path / "media").mkdir()
    (tmp_path / "secrets").mkdir()
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        decide_claim(connection, claim_on(connection, "copy"), "active", "ana")
        describe(connection, tmp_path / "media", "film")
        describe(connection, tmp_path / "secrets", "copy")
    settings = Settings(home=tmp_path / "home", media_roots=str(tmp_path / "media"))
    counts = export_labels(RetrievalEngine(settings, connect(database)), tmp_path / "out")
    assert counts == {"copies": 0, "others": 0, "without_descriptors": 1}
