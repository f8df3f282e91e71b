"""The catalogs that Iceberg tables are in: a SQLite file of the lake's own, or any that pyiceberg is told of.

The store's settings are handed to pyiceberg under its own names, so that one set of settings serves everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """A catalog that may not exist yet. Only a table that is created creates its SQLite file."""

    root: str
    name: str | None
    settings: Mapping[str, str] | None = None

    def open(self) -> Catalog:
        return open_catalog(self.root, self.name, self.settings)

    def find(self) -> Catalog | None:
        """Return None if it is a SQLite file that does not exist."""
        name = _full_name(open_store(self.root, self.settings), self.name)
        if name.startswith(_SQLITE) and not os.path.lexists(name.removeprefix(_SQLITE)):
            return None
        return self.open()


def open_catalog(root: str, name: str | None, settings: Mapping[str, str] | None = None) -> Catalog:
    """Open a catalog; create it if it is a SQLite file that does not exist."""
    store = open_store(root, settings)
    name = _full_name(store, name)
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


def _full_name(store: Store, name: str | None) -> str:
    if name is not None:
        return name
    if "://" in store.url:
        raise TableError(
            f"Iceberg tables in {store.url} need a catalog: name one that pyiceberg knows with --catalog NAME, or a "
            f"file on this machine with --catalog {_SQLITE}FILE."
        )
    return f"{_SQLITE}{join(store.url, CATALOG_FILE)}"


def location_of(url: str) -> str:
    """As a URL that pyiceberg knows, whoever reads it later."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return f"file://{url}"
    provider = provider_of(scheme)
    return url if provider is None else f"{provider.iceberg_scheme}://{rest}"


def _sqlite(file: str, properties: Mapping[str, str]) -> Catalog:
    path = os.path.abspath(file)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise TableError(
            f"The directory of the catalog {path} cannot be created: {error.strerror}. Name another directory with "
            "--to, or another catalog with --catalog."
        ) from error
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
    raise TableError(
        f"The catalog {path} cannot be opened: {_reason(failure)}. {_advice(path)}."
    ) from failure


def _reason(failure: Exception | None) -> str:
    """Return the database's own message, without the lines that SQLAlchemy adds."""
    return str(getattr(failure, "orig", None) or failure)


def _advice(path: str) -> str:
    if os.access(os.path.dirname(path), os.W_OK) and (not os.path.exists(path) or os.access(path, os.W_OK)):
        return "Another process may hold it"
    return "This user may not write it: change its permissions, or name another directory with --to"


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
