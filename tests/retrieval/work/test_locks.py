"""Advisory locks are named in one place, and strangers do not wait for each other."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import Engine, text

from retrieval.work import locks
from retrieval.work.locks import Lock
from vcl_plugin.claims.turns import take_references

ROOT = Path(__file__).parents[3]


def test_no_key_stands_anywhere_but_in_the_registry() -> None:
    sources = [*(ROOT / "retrieval").rglob("*.py"), *(ROOT / "vcl_plugin").rglob("*.py")]
    holders = {path.name for path in sources if re.search(r"\b7340\d{3}\b", path.read_text())}
    assert holders == {"locks.py"}


def test_who_changes_an_index_does_not_wait_for_a_rule_about_a_reference_of_its_name(
    db: Engine,
) -> None:
    with db.begin() as one, db.begin() as other:
        take_references(one, ["name"])
        other.execute(text("SET LOCAL lock_timeout = '2s'"))
        locks.take(other, Lock.INDEX, "name")


def test_one_at_a_time_has_a_lock(db: Engine) -> None:
    with db.begin() as one, db.begin() as other:
        assert locks.try_take(one, Lock.SWEEP)
        assert not locks.try_take(other, Lock.SWEEP)
