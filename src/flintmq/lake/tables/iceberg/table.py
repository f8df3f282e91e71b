"""Iceberg tables, through pyiceberg and whichever catalog.

Invariant: every change of ours is a new snapshot on the branch main, and is refused by the catalog unless main is
where the change was planned on; progress and properties go in the same transaction. Pyiceberg's own retry is off: it
would add the same rows on top of somebody else's. Data files are described by their footers and never opened.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.manifest import DataFile as Entry
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table as Loaded
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from flintmq.lake.limits import TABLE_LIMITS, TableLimits
from flintmq.lake.store.store import Store, StoreError, name_of
from flintmq.lake.store.store import StoredFile as StoreEntry
from flintmq.lake.tables import schema_evolution
from flintmq.lake.tables.data_file import DataFile, data_file_of
from flintmq.lake.tables.iceberg import entries
from flintmq.lake.tables.iceberg import progress as iceberg_progress
from flintmq.lake.tables.iceberg.catalogs import CatalogAddress, location_of
from flintmq.lake.tables.iceberg.snapshots import NO_RETRY, kept_snapshots, lists_of, slim_copy
from flintmq.lake.tables.other_formats import check_new
from flintmq.lake.tables.properties import PREFIX, from_texts, to_texts
from flintmq.lake.tables.table import Conflict, Format, PartitionField, TableChange, TableError, TableState

logger = logging.getLogger(__name__)

_PROPERTIES: Final = {
    **NO_RETRY,
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
"""Iceberg's own property, for who wants more of them."""
_LOOKS: Final = 3
"""How often a commit whose answer was lost is looked for."""


class IcebergTable:
    def __init__(
        self,
        store: Store,
        catalog: Catalog | CatalogAddress,
        identifier: tuple[str, str],
        *,
        limits: TableLimits = TABLE_LIMITS,
    ) -> None:
        self._store = store
        self._limits = limits
        self._address = catalog if isinstance(catalog, CatalogAddress) else None
        self._found = catalog.find() if isinstance(catalog, CatalogAddress) else catalog
        """None: there is no catalog yet, and so no table."""
        self._identifier = identifier
        self._known: Loaded | None = None

    @property
    def format(self) -> Format:
        return Format.ICEBERG

    @property
    def location(self) -> str:
        return self._store.url

    @property
    def log_directory(self) -> str:
        return "metadata"

    @property
    def is_in_catalog(self) -> bool:
        return True

    def forget(self) -> None:
        """Take the table out of the catalog; its files are left alone."""
        try:
            self._catalog.drop_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            pass  # by an earlier attempt
        except SQLAlchemyError as error:
            raise StoreError(
                f"{self._name} cannot be taken out of its catalog: {error}. See who holds it."
            ) from error
        self._known = None

    @property
    def catalog_name(self) -> str:
        """As engines name it."""
        return self._name

    def has_entry(self, name: str) -> bool:
        """Whether the catalog has a table of this name in the same namespace, wherever its files are."""
        return self._entry(self._renamed(name)) is not None

    def rename(self, name: str) -> None:
        """Give the table another name in its catalog; nothing to do if it has that name. Its files stay.

        StoreError if it is not known whether that was done; after other errors the table has its old name.
        """
        target = self._renamed(name)
        if not self._is_renamed(target):
            try:
                self._catalog.rename_table(self._identifier, target)
            except NotImplementedError as error:
                raise TableError(
                    f"The catalog of {self._name} cannot rename tables; nothing is changed."
                ) from error
            except (NoSuchTableError, TableAlreadyExistsError, NoSuchNamespaceError) as error:
                raise TableError(f"{self._name} cannot be renamed to {named(target)}: {error}.") from error
            except Exception as error:  # of whichever catalog: whether it was done is not known yet
                if not self._is_renamed(target):
                    raise StoreError(
                        f"{self._name} is not renamed to {named(target)}: {error}. Start again when the catalog "
                        "answers."
                    ) from error
        self._identifier, self._known = target, None

    def _renamed(self, name: str) -> tuple[str, str]:
        return self._identifier[0], name

    def _is_renamed(self, target: tuple[str, str]) -> bool:
        if (found := self._entry(target)) is None or not self._is_own(found):
            return False
        if (old := self._entry(self._identifier)) is not None and self._is_own(old):
            # Some catalogs rename by a new entry and the removal of the old one, and may end in between.
            if old.metadata_location != found.metadata_location:
                raise TableError(
                    f"The catalog has {self._name} and {named(target)}, both at {self.location}, and they differ: "
                    "remove the entry that has fewer snapshots."
                )
            self._catalog.drop_table(self._identifier)
        return True

    def _entry(self, identifier: tuple[str, str]) -> Loaded | None:
        try:
            with self._reaching():
                return self._catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except SQLAlchemyError as error:
            raise StoreError(
                f"The catalog of {named(identifier)} cannot be read: {error}. See which process holds it."
            ) from error

    def state(self) -> TableState | None:
        try:
            self._known = self._load()
        except (NoSuchTableError, NoSuchNamespaceError):
            self._known = None
            return None
        return self._state(self._known)

    def create(
        self,
        schema: pa.Schema,
        *,
        partitioning: Sequence[PartitionField] = (),
        properties: Mapping[str, str] | None = None,
    ) -> TableState:
        schema_evolution.check(schema)
        check_new(self, self._store, self._identifier[-1])
        made = entries.schema_of(schema)
        if self._found is None and self._address is not None:
            self._found = self._address.open()
        try:
            self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        except (NamespaceAlreadyExistsError, IntegrityError):
            pass  # by somebody else, just now
        try:
            with self._reaching():
                self._catalog.create_table(
                    self._identifier,
                    schema=made,
                    location=location_of(self.location),
                    partition_spec=entries.spec_of(made, partitioning),
                    properties={**_PROPERTIES, **to_texts({}, properties or {})},
                )
        except TableAlreadyExistsError as error:
            raise Conflict(f"There is a table {self._name} already; read its state.") from error
        except SQLAlchemyError as error:
            raise TableError(f"{self._name} cannot be made in its catalog: {error}.") from error
        state = self.state()
        assert state is not None
        return state

    def commit(self, change: TableChange) -> TableState:
        base = slim_copy(self._at(change.base))
        transaction = base.transaction()
        if change.schema is not None:
            if change.replaces_schema:
                _replace(transaction, change.schema)
            else:
                _evolve(transaction, schema_evolution.merge(change.base.schema, change.schema))
        self._describe(transaction, change)
        with self._reaching():
            snapshot_id = self._put_files(transaction, base, change)
        try:
            transaction.commit_transaction()
        except (CommitFailedException, NoSuchTableError, ValidationException) as error:
            raise Conflict(
                f"{self._name} has been changed by somebody else; read its state and plan the change again."
            ) from error
        except Exception as error:  # of whichever catalog: whether it was done is not known yet
            if not self._is_there(snapshot_id):
                raise StoreError(
                    f"{self._name}: the catalog did not say whether the commit was done, and it is not there: "
                    f"{error}. Start again when the catalog answers."
                ) from error
        # Perhaps somebody has gone on since: the latest is what the next change is planned on.
        self._known = self._load()
        self._expire_many(self._known)
        return self._state(self._known)

    def evolved(self, state: TableState, schema: pa.Schema) -> pa.Schema:
        merged = schema_evolution.merge(state.schema, schema)
        transaction = self._at(state).transaction()
        _evolve(transaction, merged)
        return entries.arrow_of(transaction.table_metadata.schema())

    def replaced(self, state: TableState, schema: pa.Schema) -> pa.Schema:
        schema_evolution.check(schema)
        transaction = self._at(state).transaction()
        _replace(transaction, schema)
        return entries.arrow_of(transaction.table_metadata.schema())

    def files(self, state: TableState) -> Iterable[DataFile]:
        table = self._at(state)
        for entry in self._entries(table):
            spec = table.specs()[entry.spec_id]
            yield data_file_of(
                self._path(entry.file_path),
                size=entry.file_size_in_bytes,
                rows=entry.record_count,
                values=entries.values_of(entry.partition, spec, table.schema()),
                progress=state.progress,
            )

    def retained(self, state: TableState, *, since_ms: int) -> set[str]:
        """Files of the snapshots that `expire` leaves."""
        table = self._at(state)
        kept = kept_snapshots(table, since_ms)
        found = {self._path(entry.file_path) for entry in self._entries(table)}
        seen: set[str] = set()
        for snapshot in table.snapshots():
            if snapshot.snapshot_id in kept:
                found.update(self._files_of(table, snapshot, seen))
        return found

    def expire(self, state: TableState, *, before_ms: int) -> None:
        """Older snapshots cannot be read any more; those that count stay."""
        table = self._at(state)
        kept = kept_snapshots(table, before_ms)
        self._expire(table, [one for one in table.snapshots() if one.snapshot_id not in kept])

    def metadata_orphans(self, state: TableState, *, before_ms: int) -> list[StoreEntry]:
        """Lists of data files that no snapshot has, and that are too old to be of a commit under way."""
        table = self._at(state)
        needed = {self._path(path) for one in table.snapshots() for path in lists_of(table, one)}
        return [
            entry
            for entry in self._store.list("metadata")
            if entry.path.endswith(".avro") and entry.path not in needed and entry.modified_ms < before_ms
        ]

    def _expire_many(self, table: Loaded) -> None:
        """Each commit costs more with every snapshot that is kept; a sync makes very many."""
        kept = max(self._limits.snapshots_kept, int(table.metadata.properties.get(_MIN_SNAPSHOTS, 0)))
        snapshots = sorted(table.snapshots(), key=lambda one: one.timestamp_ms)
        if len(snapshots) <= kept * 1.2:
            return
        refs = {one.snapshot_id for one in table.refs().values()}
        try:
            self._expire(table, [one for one in snapshots[:-kept] if one.snapshot_id not in refs])
        except (TableError, Conflict) as error:
            logger.info("%s: old snapshots stay for now: %s", self._name, error)

    def _expire(self, table: Loaded, old: Sequence[Snapshot]) -> None:
        if not old:
            return
        try:
            with self._reaching():
                table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in old]).commit()
        except (CommitFailedException, SQLAlchemyError) as error:
            raise Conflict(f"{self._name} has been changed by somebody else; try again.") from error
        # Each snapshot has a list of its own; what is in the lists may be in others too.
        self._store.delete(self._path(one.manifest_list) for one in old)

    def _files_of(self, table: Loaded, snapshot: Snapshot, seen: set[str]) -> Iterator[str]:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    yield self._path(entry.data_file.file_path)

    def _describe(self, transaction: Transaction, change: TableChange) -> None:
        progress = change.base.progress if change.progress is None else change.progress
        properties = change.base.properties if change.properties is None else change.properties
        texts = to_texts(progress, properties)
        before = {
            name: value
            for name, value in transaction.table_metadata.properties.items()
            if name.startswith(PREFIX)
        }
        if gone := before.keys() - texts.keys():
            transaction.remove_properties(*gone)
        if new := {name: value for name, value in texts.items() if before.get(name) != value}:
            transaction.set_properties(new)

    def _put_files(self, transaction: Transaction, base: Loaded, change: TableChange) -> int:
        metadata = transaction.table_metadata
        added = [
            entries.entry_of(one, location_of(self.location), metadata.schema(), metadata.spec())
            for one in change.added
        ]
        progress = change.base.progress if change.progress is None else change.progress
        update = transaction.update_snapshot(snapshot_properties=iceberg_progress.summary_of(progress))
        if not change.removed:
            # Even without files: a snapshot is what others' commits are checked against.
            with update.merge_append() as append:
                for entry in added:
                    append.append_data_file(entry)
                return append.snapshot_id
        present = {self._path(entry.file_path): entry for entry in self._entries(base)}
        with update.overwrite() as overwrite:
            for one in change.removed:
                if one.path not in present:
                    raise Conflict(
                        f"{self._name}: {one.path} is not in the table any more; plan the change again."
                    )
                overwrite.delete_data_file(present[one.path])
            for entry in added:
                overwrite.append_data_file(entry)
            return overwrite.snapshot_id

    def _entries(self, table: Loaded) -> Iterator[Entry]:
        snapshot = table.current_snapshot()
        if snapshot is None:
            return
        with self._reaching():
            for manifest in snapshot.manifests(table.io):
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    if entry.data_file.content is not DataFileContent.DATA:
                        raise TableError(
                            f"{self._name} has rows that were deleted by somebody else and not rewritten; rewrite "
                            "its data files first."
                        )
                    yield entry.data_file

    def _is_there(self, snapshot_id: int) -> bool:
        failure: Exception | None = None
        for _ in range(_LOOKS):
            try:
                return self._load().metadata.snapshot_by_id(snapshot_id) is not None
            except Exception as error:  # as above
                failure = error
        raise StoreError(
            f"{self._name}: it is not known whether the commit was done. Start again when the catalog answers; what "
            f"is there then counts. {failure}"
        ) from failure

    def _state(self, table: Loaded) -> TableState:
        said, properties = from_texts(table.metadata.properties)
        progress = iceberg_progress.progress_of(table)
        if progress != said:
            logger.warning(
                "%s has been rolled back; it goes on where the rows of its current snapshot end", self._name
            )
        return TableState(
            version=table.metadata_location,
            schema=entries.arrow_of(table.schema()),
            partitioning=entries.partitioning_of(table.spec(), table.schema(), self._name),
            progress=progress,
            properties=properties,
        )

    def _at(self, state: TableState) -> Loaded:
        for table in (self._known, None):
            found = table or self._load()
            if found.metadata_location == state.version:
                return found
        raise Conflict(
            f"{self._name} has been changed by somebody else; read its state and plan the change again."
        )

    def _load(self) -> Loaded:
        try:
            with self._reaching():
                try:
                    table = self._catalog.load_table(self._identifier)
                except FileNotFoundError as error:
                    raise TableError(
                        f"The catalog has the table {self._name}, but its files at {self.location} are gone: {error}"
                        f". Restore them, or remove the table from the catalog (in Python: {self._drop_text}) and "
                        "sync the topic again."
                    ) from error
        except SQLAlchemyError as error:
            raise StoreError(
                f"The catalog of {self._name} cannot be read: {error}. See who holds it."
            ) from error
        if not self._is_own(table):
            raise TableError(
                f"The table {self._name} is at {table.location()}: name it by its topic, "
                f"{name_of(table.location())}."
            )
        return table

    def _is_own(self, table: Loaded) -> bool:
        """By the directory alone: the same one may be reached by several paths."""
        return name_of(table.location()) == name_of(self.location)

    @property
    def _catalog(self) -> Catalog:
        """Raise NoSuchTableError if there is none yet; another process may have created it by now."""
        if self._found is None and self._address is not None:
            self._found = self._address.find()
        if self._found is None:
            raise NoSuchTableError(f"There is no catalog that could have {self._name}")
        return self._found

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """What pyiceberg's own files meet: a disk that is full, a store that is away."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self._name}: its files cannot be read or written: {error}. Check the permissions and "
                "the disk or the store, then start again."
            ) from error

    def _path(self, file_path: str) -> str:
        return file_path.removeprefix(location_of(self.location) + "/")

    @property
    def _name(self) -> str:
        return named(self._identifier)

    @property
    def _drop_text(self) -> str:
        """What removes the table from its catalog alone, in pyiceberg's words."""
        uri = str(self._catalog.properties.get("uri", "")).partition("?")[0]
        # Any other catalog is described elsewhere, and its address may hold a password.
        given = f', type="sql", uri="{uri}"' if uri.startswith("sqlite:") else ""
        return f'load_catalog("{self._catalog.name}"{given}).drop_table("{self._name}")'


def named(identifier: Sequence[str]) -> str:
    return ".".join(identifier)


def _evolve(transaction: Transaction, merged: pa.Schema) -> None:
    with transaction.update_schema() as update:
        update.union_by_name(entries.without_ids(merged))


def _replace(transaction: Transaction, schema: pa.Schema) -> None:
    """Columns of another type become others, with ids of their own: old snapshots go on having theirs."""
    wanted = entries.without_ids(schema)
    known = transaction.table_metadata.schema()
    had = entries.without_ids(entries.arrow_of(known))
    partitioned = {field.source_id for field in transaction.table_metadata.spec().fields}
    gone = []
    for field in had:
        at = wanted.get_field_index(field.name)
        if at < 0 or not wanted.field(at).equals(field):
            if known.find_field(field.name).field_id in partitioned:
                raise TableError(
                    f"Column {field.name!r} is what the table is partitioned by, and cannot change; drop the table "
                    "and sync it anew."
                )
            gone.append(field.name)
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for name in gone:
            update.delete_column(name)
    with transaction.update_schema() as update:
        update.union_by_name(wanted)
