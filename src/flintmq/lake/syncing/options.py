"""What a user asks of a sync, from the command line or from Python.

Invariant: what cannot be is refused here with words that say what to write instead; nothing is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from flintmq.arrow.codec.decode import COLUMNS
from flintmq.arrow.formats.schema_registry import SchemaType
from flintmq.arrow.scan.options import SourceOptions, TopicSelection
from flintmq.client.addresses import Address, parse_addresses
from flintmq.client.credentials.settings import SECURITY_SETTINGS, security_name
from flintmq.client.security import PLAINTEXT, ClientSecurity, parse_security
from flintmq.errors import ConfigurationError
from flintmq.lake.tables.partitioning import parse_partitioning
from flintmq.lake.tables.table import Format, PartitionField

RAW: Final = "raw"
JSON: Final = "json"
QUARANTINE_SUFFIX: Final = "__quarantine"
PIECE_BYTES: Final = 128 * 1024 * 1024
"""Of the log, in one file of the table."""

_CLIENT_ID: Final = "flintmq-lake"
_TOPIC: Final = "topic:"
_PATIENCE_MS: Final = 120_000


class Evolve(StrEnum):
    """What becomes of fields that the table has no column for."""

    FAIL = "fail"
    """The sync fails and commits nothing."""
    WARN = "warn"
    """They are counted and named."""
    ADD = "add"
    """The table gets columns for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How values become columns."""

    kind: str = RAW
    schema: str | None = None
    """As its text."""
    schema_file: str | None = None
    """Of Protobuf, which may import others beside it; where it was is not kept."""
    descriptors: bytes | None = None
    """What became of that file."""
    registry: str | None = None
    subject: str | None = None
    """In the registry."""
    ids: tuple[int, ...] = ()
    """Schemas in the registry that records turned out to have."""
    message: str | None = None
    """Protobuf: which of the messages that the schema declares."""
    into: str | None = None
    """One column for all that is decoded; None: each has its own."""
    rest: str | None = None
    """JSON: the column that keeps fields without a column of their own."""

    @property
    def is_raw(self) -> bool:
        return self.kind == RAW


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    topics: tuple[str, ...]
    to: str
    format: Format = Format.PARQUET
    bootstrap: tuple[Address, ...]
    decoding: Decoding = field(default_factory=Decoding)
    is_decoding_kept: bool = False
    """Whether an existing table is decoded as before; `decoding` is for a new one."""
    evolve: Evolve = Evolve.WARN
    partitioning: tuple[PartitionField, ...] = ()
    quarantine_topic: str | None = None
    """None: a table beside the other."""
    allow_gaps: bool = False
    group: str | None = None
    """None: `lake-` and the topic."""
    catalog: str | None = None
    namespace: str | None = None
    store: Mapping[str, str] = field(default_factory=dict)
    """Settings of the object store."""
    piece_bytes: int = PIECE_BYTES
    patience_ms: int = _PATIENCE_MS
    security: ClientSecurity = PLAINTEXT

    @property
    def source(self) -> SourceOptions:
        """How records are read: committed ones only.

        What retention takes meanwhile fails a worker's piece, gaps allowed or not: the next plan knows the range, and
        tells of it where somebody listens, which a worker's log is not.
        """
        return SourceOptions(
            bootstrap=self.bootstrap,
            topics=TopicSelection(names=self.topics),
            columns=COLUMNS,
            read_committed=True,
            fail_on_loss=True,
            client_id=_CLIENT_ID,
            patience_ms=self.patience_ms,
            security=self.security,
        )

    def group_of(self, topic: str) -> str:
        return self.group or f"lake-{topic}"


def make_options(
    topics: Sequence[str],
    *,
    to: str,
    format: str = Format.PARQUET,
    bootstrap_servers: str,
    decode: str | None = None,
    schema: str | None = None,
    registry: str | None = None,
    subject: str | None = None,
    message: str | None = None,
    into: str | None = None,
    evolve: str | None = None,
    rest: str | None = None,
    partition_by: Sequence[str] = (),
    quarantine: str = "table",
    allow_gaps: bool = False,
    group: str | None = None,
    catalog: str | None = None,
    namespace: str | None = None,
    store: Mapping[str, str] | None = None,
    piece_bytes: int = PIECE_BYTES,
    security: ClientSecurity | Mapping[str, str] = PLAINTEXT,
) -> SyncOptions:
    """Raise ConfigurationError for options that are invalid or contradict each other.

    Without `decode` a new table is raw, and an existing one is decoded as before. `security` may be Kafka's client
    settings: `{"security.protocol": "SASL_SSL", "sasl.password": "${env:KAFKA_PASSWORD}", …}`.
    """
    is_decoding_kept, decode = decode is None, decode or RAW
    if decode not in (kinds := (RAW, *SchemaType)):
        raise ConfigurationError(f"--decode {decode}: expected one of {', '.join(kinds)}")
    names = tuple(dict.fromkeys(topics))
    if not names:
        raise ConfigurationError("name the topics to sync")
    about_decoding = {
        "--schema": schema,
        "--registry": registry,
        "--subject": subject,
        "--message": message,
        "--into": into,
        "--evolve": evolve,
        "--rest": rest,
    }
    if decode == RAW and (given := [name for name, value in about_decoding.items() if value]):
        raise ConfigurationError(f"{given[0]} requires --decode: add --decode json, avro or protobuf")
    if rest and evolve == Evolve.FAIL:
        raise ConfigurationError("--evolve fail and --rest exclude each other; give one of them")
    if schema and registry:
        raise ConfigurationError("--schema and --registry exclude each other; give one of them")
    text, file = (None, None) if schema is None else _schema(schema, decode)
    if piece_bytes <= 0:
        raise ConfigurationError(f"--file-size takes a size above 0, not {piece_bytes}")
    return SyncOptions(
        topics=names,
        to=to,
        format=_format(format),
        bootstrap=tuple(parse_addresses(bootstrap_servers)),
        decoding=Decoding(
            kind=decode,
            schema=text,
            schema_file=file,
            registry=registry,
            subject=subject,
            message=message,
            into=into,
            rest=_rest(rest, decode, registry),
        ),
        is_decoding_kept=is_decoding_kept,
        evolve=_evolve(evolve, decode, registry),
        partitioning=parse_partitioning(partition_by),
        quarantine_topic=_quarantine_topic(quarantine, names),
        allow_gaps=allow_gaps,
        group=group,
        catalog=catalog,
        namespace=namespace,
        store=dict(store or {}),
        piece_bytes=piece_bytes,
        security=security if isinstance(security, ClientSecurity) else _security(security),
    )


def _security(given: Mapping[str, str]) -> ClientSecurity:
    if unknown := [name for name in given if security_name(name) is None]:
        raise ConfigurationError(
            f"security: {unknown[0]} is not one of Kafka's client settings for TLS and SASL; "
            f"use {', '.join(one.name for one in SECURITY_SETTINGS)}"
        )
    return parse_security(given)


def parse_store_settings(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(
                f"--store {text}: expected NAME=VALUE, such as endpoint=http://127.0.0.1:9000"
            )
        found[name.strip()] = value.strip()
    return found


def _schema(given: str, kind: str) -> tuple[str | None, str | None]:
    """The text, or the file that it is in: a schema has spaces or braces, and a file is there."""
    if not os.path.isfile(given):
        if " " in given.strip() or "{" in given:
            return given, None
        raise ConfigurationError(
            f"--schema {given}: there is no such file, and the text is not a schema; give a file, or for JSON "
            "columns such as 'id long, name string'"
        )
    if kind == "protobuf":
        return None, given
    try:
        with open(given, encoding="utf-8-sig") as file:
            return file.read(), None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--schema {given}: {error}") from None


def _evolve(text: str | None, decode: str, registry: str | None) -> Evolve:
    if text is None:
        return Evolve.WARN if registry is None else Evolve.ADD
    try:
        evolve = Evolve(text)
    except ValueError:
        raise ConfigurationError(f"--evolve {text}: expected one of {', '.join(Evolve)}") from None
    if registry is not None and evolve is Evolve.WARN:
        raise ConfigurationError(
            "--evolve warn: a table whose schemas come from a registry has all of their columns; say add or fail"
        )
    if registry is None and evolve is Evolve.ADD and decode != JSON:
        raise ConfigurationError(
            f"--evolve add: values in {decode} do not name their fields; give the new schema with --schema"
        )
    return evolve


def _rest(column: str | None, decode: str, registry: str | None) -> str | None:
    if column and (decode != JSON or registry is not None):
        raise ConfigurationError(
            "--rest keeps fields of JSON whose columns are named or inferred; leave it out"
        )
    return column or None


def _format(text: str) -> Format:
    try:
        return Format(text)
    except ValueError:
        raise ConfigurationError(f"--format {text}: expected one of {', '.join(Format)}") from None


def _quarantine_topic(text: str, topics: Sequence[str]) -> str | None:
    if text == "table":
        return None
    name = text.removeprefix(_TOPIC)
    if name == text or not name:
        raise ConfigurationError(f"--quarantine {text}: expected table, or topic:NAME")
    if name in topics:
        raise ConfigurationError(f"--quarantine {text}: the topic is synced itself; take another")
    return name
