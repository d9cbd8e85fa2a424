"""`vcl index`: what it says of an index, and what the worker's keeper runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import numpy as np
import pytest

from retrieval.database import transaction
from retrieval.index.keeper import SnapshotKeeper
from retrieval.index.snapshots import current_facts
from retrieval.process import process_engine
from retrieval.work import catalogue
from tests.vcl_plugin.cli.conftest import Said

FRAMES = 20


def plant_references(*names: str) -> None:
    engine = process_engine()
    kind = engine.descriptor.fingerprint.key
    with transaction(engine.database) as connection:
        for seed, name in enumerate(names):
            rows = np.random.default_rng(seed).standard_normal((FRAMES, 256))
            path = engine.store.write(name, kind, rows / np.linalg.norm(rows, axis=1)[:, None])
            catalogue.register_foreign(connection, name, None, float(FRAMES))
            catalogue.record_descriptors(connection, name, kind, str(path), FRAMES, 256)
            catalogue.make_reference(connection, name)


@pytest.mark.usefixtures("site_environment")
def test_info_tells_what_is_in_the_index_and_in_its_snapshot(vcl: Callable[..., Said]):
    plant_references("a", "b")
    before = json.loads(vcl("index", "info", "--json").out)
    assert (before["videos"], before["kind"], before["changes_since_snapshot"]) == (2, "flat", 2)
    assert "self_test" not in before
    assert vcl("index", "build").code == 0
    plant_references("c")
    said = vcl("index", "info", "--json")
    facts = json.loads(said.out)
    assert (facts["videos"], facts["changes_since_snapshot"]) == (3, 1)
    assert facts["self_test"]["recall_at_1"] == 1.0
    assert facts["snapshot_age_seconds"] >= 0
    assert facts["fingerprint"] == process_engine().descriptor.fingerprint.key
    assert facts["bytes_per_window"] > 1024
    plain = vcl("index", "info").out
    assert "recall at 1 1" in plain
    assert "changes since snapshot" in plain
    assert json.loads(vcl("index", "info", "--uploads", "--json").out)["videos"] == 0


@pytest.mark.usefixtures("site_environment")
def test_a_snapshot_that_is_not_due_is_not_made(vcl: Callable[..., Said]):
    plant_references("a", "b")
    assert json.loads(vcl("index", "build", "--if-due", "--json").out) == {"snapshots": []}
    assert "none was due" in vcl("index", "build", "--if-due").out


@pytest.mark.usefixtures("site_environment")
def test_the_worker_has_a_snapshot_made_when_a_hundred_references_came(vcl: Callable[..., Said]):
    engine = process_engine()
    plant_references(*(f"film-{number}" for number in range(100)))
    keeper = SnapshotKeeper([sys.executable, "-m", "vcl_plugin.cli", "index", "build", "--if-due"])
    keeper.look(engine.database)
    assert keeper.child is not None
    assert keeper.child.wait(timeout=300) == 0
    facts = current_facts(engine.settings.index_dir, engine.index_key)
    assert facts is not None
    assert facts.videos == 100
    assert json.loads(vcl("index", "info", "--json").out)["changes_since_snapshot"] == 0
