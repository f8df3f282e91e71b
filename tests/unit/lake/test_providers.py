"""Addresses and settings of object stores (P4): one name serves the store, deltalake and pyiceberg."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from flintmq.lake.store.store import StoreError, open_store
from flintmq.lake.tables.iceberg.catalogs import location_of, open_catalog


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT",
        "AZURE_STORAGE_ENDPOINT",
        "AZURE_ENDPOINT",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "url", "iceberg"),
    [
        ("s3://lake/a/b/", "s3://lake/a/b", "s3://lake/a/b"),
        ("s3a://lake/a", "s3://lake/a", "s3://lake/a"),
        ("gs://lake/a", "gs://lake/a", "gs://lake/a"),
        ("gcs://lake", "gs://lake", "gs://lake"),
        ("az://lake/a", "az://lake/a", "abfs://lake/a"),
        ("azure://lake/a", "az://lake/a", "abfs://lake/a"),
        ("abfs://lake/a", "az://lake/a", "abfs://lake/a"),
        ("abfss://lake@shop.dfs.core.windows.net/a/b", "az://lake/a/b", "abfs://lake/a/b"),
    ],
)
def test_an_address_has_one_form(given: str, url: str, iceberg: str) -> None:
    store = open_store(given)
    assert (store.url, location_of(store.url)) == (url, iceberg)
    assert open_store(store.url, store.settings).settings == store.settings


def test_an_account_within_an_address_is_a_setting() -> None:
    given = "abfss://lake@shop.dfs.core.windows.net/a"
    assert open_store(given).settings == {"account_name": "shop"}
    assert open_store(given, {"account_name": "other"}).settings == {"account_name": "other"}


@pytest.mark.parametrize(
    ("url", "given", "settings"),
    [
        (
            "s3://b",
            {"AWS_REGION": "x", "endpoint-url": "http://h:1"},
            {"region": "x", "endpoint": "http://h:1", "allow_http": "true"},
        ),
        ("s3://b", {"AWS_REGION": "x"}, {"region": "x"}),
        ("gs://b", {"GOOGLE_SERVICE_ACCOUNT_PATH": "key.json"}, {"service_account": "key.json"}),
        ("gs://b", {"service_account_key": "{}"}, {"service_account_key": "{}"}),
        (
            "az://b",
            {"AZURE_STORAGE_ACCOUNT_NAME": "shop", "access_key": "k"},
            {"account_name": "shop", "account_key": "k"},
        ),
        ("az://b", {"azure-storage-sas-key": "s"}, {"sas_token": "s"}),
    ],
)
def test_a_setting_has_one_name(url: str, given: Mapping[str, str], settings: Mapping[str, str]) -> None:
    assert {
        name: value for name, value in open_store(url, given).settings.items() if name in settings
    } == settings


def test_what_workers_need_comes_from_the_environment_and_credentials_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "shop")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "secret of mine")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", "secret of mine")
    assert open_store("az://lake").settings == {"account_name": "shop"}
    for url in ("az://lake", "gs://lake"):
        assert b"secret of mine" not in pickle.dumps(open_store(url))


def test_an_address_that_no_store_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        StoreError, match=r"no store for ftp://.*s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://"
    ):
        open_store("ftp://host/a")


def test_pyiceberg_is_given_the_same_settings(tmp_path: object) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    azure = open_catalog(
        "az://lake",
        catalog,
        {"account_name": "shop", "account_key": "k", "endpoint": "http://127.0.0.1:1/shop"},
    ).properties
    assert azure["adls.account-name"] == "shop"
    assert azure["adls.account-key"] == "k"
    assert azure["adls.blob-storage-authority"] == azure["adls.dfs-storage-authority"] == "127.0.0.1:1"
    assert azure["adls.blob-storage-scheme"] == "http"
    assert azure["warehouse"] == "abfs://lake"
    google = open_catalog("gs://lake", catalog, {"oauth2_token": "t"}).properties
    assert (google["gcs.oauth2.token"], google["warehouse"]) == ("t", "gs://lake")
