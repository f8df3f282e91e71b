"""The catalogs that Iceberg tables are in: a SQLite file of the lake's own, or any that pyiceberg is told of.

The store's settings are handed to pyiceberg under its own names, so that one set of settings serves everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from pyiceberg.catalog import Catalog, load_catalog
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from flintmq.lake.store.providers import provider_of
from flintmq.lake.store.store import Store, join, open_store
from flintmq.lake.tables.table import TableError

CATALOG_FILE: Final = "catalog.db"

_NAME: Final = "flintmq"
_SQLITE: Final = "sqlite:///"
_WAIT_SECONDS: Final = 30
"""For another writer's lock on the file."""
_ATTEMPTS: Final = 3


def open_catalog(root: str, name: str | None, settings: Mapping[str, str] | None = None) -> Catalog:
    store = open_store(root, settings)
    if name is None:
        if "://" in store.url:
            raise TableError(
                f"Iceberg tables in {store.url} need a catalog: give the name of one that pyiceberg knows, or "
                f"{_SQLITE}FILE for a file on this machine."
            )
        name = f"{_SQLITE}{join(store.url, CATALOG_FILE)}"
    properties = _io_properties(store)
    if name.startswith(_SQLITE):
        return _sqlite(name.removeprefix(_SQLITE), {**properties, "warehouse": location_of(store.url)})
    try:
        return load_catalog(name, **properties)
    except Exception as error:  # each kind of catalog fails in its own way
        raise TableError(
            f"The catalog {name} cannot be opened: {error}. Describe it in ~/.pyiceberg.yaml or in variables "
            f"PYICEBERG_CATALOG__{name.upper()}__…, as pyiceberg's documentation says."
        ) from error


def location_of(url: str) -> str:
    """As a URL that pyiceberg knows, whoever reads it later."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return f"file://{url}"
    provider = provider_of(scheme)
    return url if provider is None else f"{provider.iceberg_scheme}://{rest}"


def _sqlite(file: str, properties: Mapping[str, str]) -> Catalog:
    path = os.path.abspath(file)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    failure: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            return load_catalog(
                _NAME, type="sql", uri=f"{_SQLITE}{path}?timeout={_WAIT_SECONDS}", **properties
            )
        except OperationalError as error:
            # Two that make the file at once: the second finds its tables half way.
            failure = error
        except SQLAlchemyError as error:
            raise TableError(f"{path} is no catalog: {error}. Move it away, or name another.") from error
    raise TableError(f"The catalog {path} cannot be opened: {failure}. See who holds it.") from failure


def _io_properties(store: Store) -> dict[str, str]:
    provider = provider_of(store.url.partition("://")[0]) if "://" in store.url else None
    if provider is None:
        return {}
    settings = store.settings
    names = provider.iceberg_names
    return {
        **{names[name]: value for name, value in settings.items() if name in names},
        **provider.iceberg_properties(settings),
    }
