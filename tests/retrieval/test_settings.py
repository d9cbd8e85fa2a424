"""Settings come from VCL_* variables; what cannot be right is refused with the variable's name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from retrieval.errors import BadSetting
from retrieval.settings import Settings, describe_settings, load_settings, mask_password, variable


def test_without_variables_every_setting_has_its_default():
    assert load_settings({}) == Settings()


def test_an_empty_variable_is_no_variable():
    assert load_settings({"VCL_TOP_K": ""}).top_k == Settings().top_k


def test_variables_become_values_of_the_field_s_type():
    settings = load_settings(
        {"VCL_TOP_K": "7", "VCL_LEASE_SECONDS": "2.5", "VCL_HOME": "~/x", "HOME": "/home/ana"}
    )
    assert settings.top_k == 7
    assert settings.lease_seconds == 2.5
    assert settings.home == Path("~/x").expanduser()
    assert settings.store_dir == settings.home / "store"


def test_a_variable_nobody_knows_is_an_error_that_names_it():
    with pytest.raises(BadSetting, match="VCL_TOPK is not a setting"):
        load_settings({"VCL_TOPK": "7"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VCL_TOP_K", "many"),
        ("VCL_TOP_K", "1.5"),
        ("VCL_TOP_K", "0"),
        ("VCL_LEASE_SECONDS", "-1"),
        ("VCL_LEASE_SECONDS", "nan"),
        ("VCL_LEASE_SECONDS", "inf"),
        ("VCL_MIN_CANDIDATE_SCORE", "2"),
        ("VCL_DEVICE", "tpu"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_the_variable_s_name(name: str, value: str):
    with pytest.raises(BadSetting, match=name) as caught:
        load_settings({name: value})
    assert caught.value.code == "bad_setting"


def test_every_setting_is_described_with_its_meaning_and_source(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VCL_TOP_K", "7")
    rows = {row["setting"]: row for row in describe_settings(load_settings())}
    assert set(rows) == {each.name for each in dataclasses.fields(Settings)}
    assert rows["top_k"]["source"] == variable("top_k") == "VCL_TOP_K"
    assert rows["lease_seconds"]["source"] == "default"
    assert all(row["meaning"] for row in rows.values())


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:s3cret@db/vcl",
        "postgresql+psycopg2://ana:s3cret@db:5432/vcl?sslmode=require",
        "redis://:s3cret@cache:6379/0",
        "postgresql://ana:s3cret/with@slash@db/vcl",
        "postgresql://ana:s3cret#hash@db/vcl",
        "postgresql://ana:s3cret[brackets@db/vcl",
        "postgresql://db/vcl?user=ana&password=s3cret",
        "postgresql://db/vcl?user=ana&some option=s3cret&host=/run",
    ],
)
def test_a_password_is_never_shown(url: str):
    assert "s3cret" not in mask_password(url)
    assert "***" in mask_password(url)


def test_a_url_without_a_password_is_shown_as_it_is():
    for url in ("postgresql://vcl@/vcl?host=/run", "redis+socket:///run/v.sock", "", "lite0"):
        assert mask_password(url) == url


def test_passwords_are_masked_in_the_description(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VCL_DATABASE_URL", "postgresql://ana:s3cret@db/vcl")
    assert not any("s3cret" in row["value"] for row in describe_settings(load_settings()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VCL_DATABASE_URL", "ana:s3cret@db/vcl"),
        ("VCL_DATABASE_URL", "host=db password=s3cret"),
        ("VCL_DATABASE_URL", "mysql://ana:s3cret@db/vcl"),
        ("VCL_BROKER_URL", "s3cret"),
        ("VCL_BROKER_URL", "amqp://a:s3cret@host//"),
    ],
)
def test_an_address_we_cannot_use_is_refused_without_being_shown(name: str, value: str):
    with pytest.raises(BadSetting, match=name) as caught:
        load_settings({name: value})
    assert "s3cret" not in str(caught.value)


def test_the_index_has_a_folder_of_its_own_below_the_home_or_elsewhere(tmp_path: Path):
    settings = Settings(home=tmp_path)
    assert settings.index_dir == tmp_path / "index"
    known = {"VCL_HOME": str(tmp_path), "VCL_INDEX_DIR": "/var/lib/vcl"}
    assert load_settings(known).index_dir == Path("/var/lib/vcl")
    assert load_settings(known | {"VCL_INDEX_DIR": "~/vcl"}).index_dir == Path("~/vcl").expanduser()
