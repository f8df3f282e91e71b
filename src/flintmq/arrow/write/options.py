"""What a user asks of the sink `flintmq`, from Spark's options, and the columns that it takes. Pure.

Names are those of Spark's Kafka sink wherever it has the option. Invariant: an option or a column is either
understood or refused with a message that says what to write; none is ignored. `SinkOptions` can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NamedTuple

from flintmq.arrow.security_options import SECURITY_OPTIONS, is_security_option, parse_security_options
from flintmq.client.addresses import Address, parse_addresses
from flintmq.client.security import PLAINTEXT, ClientSecurity
from flintmq.errors import ConfigurationError
from flintmq.records.compression import CODEC_BY_NAME, Codec

BATCH_BYTES: Final = 256 * 1024
LEDGER_TOPIC: Final = "__flintmq_spark_ledger"
_CLIENT_ID: Final = "flintmq-spark"
_CODECS: Final = tuple(codec.label for codec in Codec)


class SinkOption(NamedTuple):
    name: str
    default: str
    """As it is written; empty if there is none."""
    meaning: str


SINK_OPTIONS: Final = (
    SinkOption(
        "kafka.bootstrap.servers", "", "brokers to begin with, host:port separated by commas; required"
    ),
    SinkOption("topic", "", "the topic of all rows; stands above a column `topic`"),
    SinkOption("writeId", "", "batch writes: write once under this name, however often the write is run"),
    SinkOption("kafka.compression.type", "none", f"of the records: {', '.join(_CODECS)}"),
    SinkOption("kafka.batch.size", str(BATCH_BYTES), "bytes of records in one batch before compression"),
    SinkOption("kafka.acks", "all", "nothing else: streaming writes rely on it"),
    SinkOption("kafka.enable.idempotence", "true", "nothing else"),
    SinkOption("kafka.request.timeout.ms", "30000", "how long an answer is awaited"),
    SinkOption("kafka.delivery.timeout.ms", "120000", "how long to go on trying while brokers are away"),
    SinkOption(
        "kafka.transaction.timeout.ms",
        "the longest that the broker allows",
        "how long the rows of a streaming batch may wait for their commit (transaction.max.timeout.ms)",
    ),
    SinkOption("kafka.client.id", _CLIENT_ID, "the name of this client in the broker's logs and metrics"),
    SinkOption("ledgerTopic", LEDGER_TOPIC, "the compacted topic that says which batches are committed"),
    SinkOption(
        "onTornBatch",
        "fail",
        "what to do with a batch of which the broker has aborted a part: fail, or rewrite it: rows come twice",
    ),
    *(SinkOption(name, default, meaning) for name, default, meaning in SECURITY_OPTIONS),
)
_NAMES: Final = {option.name.lower(): option for option in SINK_OPTIONS}
# Spark's own, which come with the others.
_OF_SPARK: Final = ("checkpointlocation", "path", "queryname")

_BYTES: Final = ("binary", "string")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""The columns of the sink and their types, as Spark writes them."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: tuple[Address, ...]
    topic: str | None = None
    write_id: str | None = None
    codec: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    request_timeout_s: float = 30.0
    patience_s: float = 120.0
    transaction_timeout_ms: int | None = None
    """None: the longest that the broker allows."""
    client_id: str = _CLIENT_ID
    ledger_topic: str = LEDGER_TOPIC
    rewrites_torn: bool = False
    security: ClientSecurity = PLAINTEXT

    def check_columns(self, columns: Iterable[tuple[str, str]]) -> None:
        """Names and types of what is to be written. ConfigurationError says what they should be."""
        given = dict(columns)
        takes = ", ".join(f"{name} ({' or '.join(types)})" for name, types in COLUMNS.items())
        unknown = [name for name in given if name not in COLUMNS]
        if unknown:
            raise ConfigurationError(
                f"the sink has no column {', '.join(unknown)}; it takes {takes}: select these, and drop the others"
            )
        for name, kind in given.items():
            if kind not in COLUMNS[name]:
                raise ConfigurationError(
                    f"the column {name} is {kind} and should be {' or '.join(COLUMNS[name])}: "
                    f"cast it; the sink takes {takes}"
                )
        if "value" not in given:
            raise ConfigurationError(f"there is no column value; the sink takes {takes}")
        if self.topic is None and "topic" not in given:
            raise ConfigurationError("no topic: set the option topic, or have a column topic")


def parse_sink(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """ConfigurationError says what is wrong, and what is right."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    for name in given:
        _refuse_unknown(name)
    if streaming and given.get("writeid"):
        raise ConfigurationError(
            "writeId is for batch writes: a stream is written once under its own id already"
        )
    _only(given, "kafka.acks", "all", "-1")
    _only(given, "kafka.enable.idempotence", "true")
    if not given.get("kafka.bootstrap.servers"):
        raise ConfigurationError(
            "the option kafka.bootstrap.servers is required: host:port, separated by commas"
        )
    timeout_ms = given.get("kafka.transaction.timeout.ms")
    return SinkOptions(
        bootstrap=tuple(parse_addresses(given["kafka.bootstrap.servers"])),
        topic=given.get("topic") or None,
        write_id=given.get("writeid") or None,
        codec=CODEC_BY_NAME[_only(given, "kafka.compression.type", *_CODECS)],
        batch_bytes=_count(given, "kafka.batch.size"),
        request_timeout_s=_count(given, "kafka.request.timeout.ms") / 1000,
        patience_s=_count(given, "kafka.delivery.timeout.ms") / 1000,
        transaction_timeout_ms=_count(given, "kafka.transaction.timeout.ms") if timeout_ms else None,
        client_id=given.get("kafka.client.id") or _CLIENT_ID,
        ledger_topic=given.get("ledgertopic") or LEDGER_TOPIC,
        rewrites_torn=_only(given, "onTornBatch", "fail", "rewrite") == "rewrite",
        security=parse_security_options(options),
    )


def _refuse_unknown(name: str) -> None:
    if name in _NAMES or name in _OF_SPARK or is_security_option(name):
        return
    near = get_close_matches(name, _NAMES, n=1)
    hint = f"did you mean {_NAMES[near[0]].name}? " if near else ""
    known = ", ".join(option.name for option in SINK_OPTIONS)
    raise ConfigurationError(f"the sink has no option {name}; {hint}It has {known}")


def _only(given: Mapping[str, str], name: str, *allowed: str) -> str:
    value = (given.get(name.lower()) or _NAMES[name.lower()].default).lower()
    if value not in allowed:
        raise ConfigurationError(f"{name} must be {' or '.join(allowed)}, not {value}")
    return value


def _count(given: Mapping[str, str], name: str) -> int:
    value = given.get(name.lower()) or _NAMES[name.lower()].default
    if not value.isdecimal() or int(value) < 1:
        raise ConfigurationError(f"{name} must be a number of at least 1, not {value}")
    return int(value)
