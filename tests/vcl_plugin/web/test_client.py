"""The client of the documentation, against the real application."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from retrieval.database import transaction
from retrieval.work import searches
from tests.vcl_plugin.web.conftest import Desk

SOURCE = Path(__file__).parents[3] / "docs" / "client.py"


def load_client() -> ModuleType:
    spec = importlib.util.spec_from_file_location("client", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["client"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_client_uploads_waits_and_reads_every_page(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_client()
    monkeypatch.setattr(module, "PIECE", 1000)
    desk.client.headers.update(desk.as_("service"))
    client = module.Client(desk.client)
    film = tmp_path / "film.mp4"
    film.write_bytes(bytes(range(256)) * 10)
    accepted = client.upload(film, uploader="bo")
    assert accepted["bytes"] == 2560
    with transaction(desk.engine.database) as connection:
        searches.count_opened(connection, accepted["search_id"], 0, 0)
    assert client.wait(accepted["search_id"])["status"] == "done"
    titles = [claim["query"] for claim in client.pages("/claims", limit=1)]
    assert titles == ["forty", "twenty", "ten"]
    with pytest.raises(module.ApiError) as refused:
        client.call("POST", "/claims/1/notes", json={"note": "x"})
    assert (refused.value.status, refused.value.code) == (403, "forbidden")
