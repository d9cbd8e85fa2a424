"""Assets are known by owner and title, and a video stands for one of them."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from retrieval.database import connect, transaction
from retrieval.errors import NotFound, Refused
from retrieval.work import catalogue
from vcl_plugin.claims import assets, holdings


@pytest.fixture
def db(database: str) -> Engine:
    return connect(database)


def test_the_same_owner_and_title_twice_is_the_same_asset(db: Engine):
    with transaction(db) as connection:
        first = assets.add_asset(connection, "Northlight", "Harbour")
        assert assets.add_asset(connection, "Northlight", "Harbour") == first
        assert assets.add_asset(connection, "Ostrava", "Harbour") != first
        assert len(holdings.list_assets(connection).rows) == 2


@pytest.mark.parametrize(("owner", "title"), [("", "x"), ("x", ""), ("  ", "x"), ("x", "\t")])
def test_an_asset_needs_an_owner_and_a_title(db: Engine, owner: str, title: str):
    with transaction(db) as connection, pytest.raises(Refused, match="must not be empty"):
        assets.add_asset(connection, owner, title)


def test_an_asset_is_found_by_number_or_title_and_two_of_one_title_by_number(db: Engine):
    with transaction(db) as connection:
        first = assets.add_asset(connection, "Northlight", "Harbour")
        assert assets.find_asset(connection, "Harbour") == first
        assert assets.find_asset(connection, str(first)) == first
        second = assets.add_asset(connection, "Ostrava", "Harbour")
        with pytest.raises(Refused, match=rf"{first} \(Northlight\), {second} \(Ostrava\)"):
            assets.find_asset(connection, "Harbour")
        with pytest.raises(NotFound, match="`vcl asset list`"):
            assets.find_asset(connection, "Harbor")


def test_a_number_is_a_number_though_another_asset_is_titled_so(db: Engine):
    with transaction(db) as connection:
        first = assets.add_asset(connection, "Northlight", "Harbour")
        titled = assets.add_asset(connection, "Northlight", str(first))
        assert assets.find_asset(connection, str(first)) == first
        assert assets.find_asset(connection, str(titled)) == titled
        assert assets.find_titled(connection, str(first)) == ("Harbour", "Northlight")


def test_no_video_stands_for_an_asset_that_was_removed(db: Engine):
    with transaction(db) as connection:
        catalogue.register_foreign(connection, "film", None, 60.0)
        gone = assets.add_asset(connection, "Northlight", "Harbour")
        assets.remove_asset(connection, gone)
        with pytest.raises(Refused, match=r"asset 1 'Harbour' was removed on .* `vcl asset add`"):
            assets.add_reference(connection, "film", gone)
        assert holdings.list_references(connection).rows == []


def test_a_video_stands_for_one_asset_until_it_is_removed(db: Engine):
    with transaction(db) as connection:
        catalogue.register_foreign(connection, "film", None, 60.0)
        first = assets.add_asset(connection, "Northlight", "Harbour")
        second = assets.add_asset(connection, "Ostrava", "Garden")
        assets.add_reference(connection, "film", first)
        assets.add_reference(connection, "film", first)
        with pytest.raises(Refused, match=r"`vcl reference remove film`"):
            assets.add_reference(connection, "film", second)
        assets.remove_reference(connection, "film")
        assert holdings.list_references(connection).rows == []
        assets.add_reference(connection, "film", second)
        [row] = holdings.list_references(connection).rows
    assert (row["id"], row["owner"], row["asset"]) == ("film", "Ostrava", "Garden")


def test_a_reference_that_is_none_cannot_be_removed(db: Engine):
    with transaction(db) as connection, pytest.raises(NotFound, match="'film' is no reference"):
        assets.remove_reference(connection, "film")
