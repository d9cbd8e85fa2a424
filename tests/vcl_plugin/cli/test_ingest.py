"""`vcl ingest` beside other commands: two real connections, one order of locks."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from retrieval.database import transaction
from retrieval.process import process_engine
from vcl_plugin.claims import assets, holdings
from vcl_plugin.claims.turns import take_references
from vcl_plugin.cli import ingest


@pytest.mark.usefixtures("site_environment")
def test_ingest_and_reference_add_of_one_film_do_not_wait_in_a_circle(tmp_path: Path) -> None:
    """PostgreSQL would end one of the two as a deadlock after a second."""
    film = tmp_path / "film.mp4"
    film.write_bytes(b"only its bytes are asked for")
    engine = process_engine()
    video_id = engine.register(film)
    with transaction(engine.database) as connection:
        asset_id = assets.add_asset(connection, "Ana", "film")

    def register() -> list[str]:
        return list(ingest._register(engine, film, "Ana", None, []))

    waiting = text("""
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'""")
    with ThreadPoolExecutor() as pool:
        with transaction(engine.database) as connection:
            take_references(connection, [video_id])  # `vcl reference add` has begun
            ingested = pool.submit(register)
            deadline = time.monotonic() + 30
            while not connection.execute(waiting).scalar_one():
                assert time.monotonic() < deadline, "ingest never came to wait"
                connection.execute(text("SELECT pg_stat_clear_snapshot()"))
                time.sleep(0.01)
            assets.add_reference(connection, video_id, asset_id)
        assert ingested.result(timeout=30) == [video_id]
    with transaction(engine.database) as connection:
        [row] = holdings.list_references(connection).rows
    assert (row["id"], row["owner"], row["asset"]) == (video_id, "Ana", "film")
