"""The options of the source `flintmq`, as a list: names, where they hold, what they mean. Pure.

Names and meanings are those of Spark's Kafka source wherever it has the option. Invariant: this is the only list;
the parser, its error messages and the manual come from it.
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import Enum
from typing import Final, NamedTuple

from flintmq.arrow.security_options import SECURITY_OPTIONS, is_security_option
from flintmq.errors import ConfigurationError


class Scope(Enum):
    BOTH = "read, readStream"
    BATCH = "read"
    STREAM = "readStream"


class Option(NamedTuple):
    name: str
    default: str
    """As it is written; empty if there is none."""
    meaning: str
    scope: Scope = Scope.BOTH


OPTIONS: Final = (
    Option("kafka.bootstrap.servers", "", "brokers to begin with, host:port separated by commas; required"),
    Option("subscribe", "", "topics to read, separated by commas"),
    Option("subscribePattern", "", "a regular expression (Python's) that the whole name of a topic matches"),
    Option("assign", "", 'partitions to read: {"topic": [0, 1]}'),
    Option(
        "startingOffsets",
        "earliest; latest for a stream",
        'where to start: earliest, latest (streams) or {"topic": {"0": 23, "1": -2}}; -2 is earliest, -1 latest',
    ),
    Option("startingTimestamp", "", "start at the first record of this time (ms since 1970) or later"),
    Option("startingOffsetsByTimestamp", "", 'the same for each partition: {"topic": {"0": 1700000000000}}'),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "what to do where no record is so late: error, or latest to start at the end",
    ),
    Option("endingOffsets", "latest", "where to end: latest, or offsets for each partition", Scope.BATCH),
    Option("endingTimestamp", "", "end before the first record of this time or later", Scope.BATCH),
    Option("endingOffsetsByTimestamp", "", "the same for each partition", Scope.BATCH),
    Option("minPartitions", "", "at least so many tasks: large ranges of offsets are split"),
    Option("maxRecordsPerPartition", "", "at most so many offsets in one task"),
    Option("maxOffsetsPerTrigger", "", "at most so many offsets in one micro-batch", Scope.STREAM),
    Option("minOffsetsPerTrigger", "", "wait until there are so many offsets", Scope.STREAM),
    Option("maxTriggerDelay", "15m", "but never longer than this", Scope.STREAM),
    Option("failOnDataLoss", "true", "records that are gone are an error; if false, a warning"),
    Option("includeHeaders", "false", "a column `headers`"),
    Option("columns", "", "the columns to have, separated by commas; others are not even decoded"),
    Option(
        "segments",
        "auto",
        "read segments from the broker's files: auto, where the driver finds them on its disk; never; or "
        "always, where workers share a disk with the broker and the driver need not",
    ),
    Option("groupId", "", "publish progress as this consumer group, so that lag shows", Scope.STREAM),
    Option("kafka.group.id", "", "the same as groupId", Scope.STREAM),
    Option("kafka.isolation.level", "read_uncommitted", "or read_committed: without aborted transactions"),
    Option("kafka.client.id", "flintmq-spark", "the name that the broker sees in its logs and quotas"),
    Option("kafka.request.timeout.ms", "30000", "how long one request may take"),
    Option("kafka.max.partition.fetch.bytes", "4194304", "the most bytes that one fetch returns"),
    Option("kafka.check.crcs", "true", "check each batch's CRC32C"),
    Option("kafkaConsumer.pollTimeoutMs", "120000", "how long a broker that is away is waited for"),
    *(Option(name, default, meaning) for name, default, meaning in SECURITY_OPTIONS),
)

NAMES: Final = {one.name.lower(): one for one in OPTIONS}

# Options of Spark's Kafka source or of Kafka's consumer that say nothing here, and what to do instead.
_ELSEWHERE: Final = {
    "path": "load() takes no path; name the topics by the option subscribe, subscribePattern or assign",
    "groupidprefix": "no group is joined, so there is none to be named; groupId publishes a stream's progress",
    "fetchoffset.numretries": "kafkaConsumer.pollTimeoutMs says how long a broker is waited for",
    "fetchoffset.retryintervalms": "kafkaConsumer.pollTimeoutMs says how long a broker is waited for",
    "kafka.auto.offset.reset": "startingOffsets says where to start",
    "kafka.enable.auto.commit": "Spark keeps the offsets; groupId publishes them",
    "kafka.key.deserializer": "keys are binary; convert them in the query, CAST(key AS STRING)",
    "kafka.value.deserializer": "values are binary; convert them in the query, CAST(value AS STRING)",
    "kafka.max.poll.records": "records are not polled one by one here; leave it out",
    "kafka.receive.buffer.bytes": "the system sizes the buffers; leave it out",
    "kafka.fetch.max.bytes": "kafka.max.partition.fetch.bytes is the size of a fetch, which is of one partition",
}
_SECURITY: Final = ("kafka.sasl.", "kafka.ssl.")


def refuse_unknown(name: str) -> None:
    """Raise what is to be said of an option that is not on the list; nothing if it is."""
    lowered = name.lower()
    if lowered in NAMES or is_security_option(lowered):
        return
    if lowered in _ELSEWHERE:
        raise ConfigurationError(f"the option {name} is not one of this source: {_ELSEWHERE[lowered]}")
    if lowered.startswith(_SECURITY):
        raise ConfigurationError(
            f"the option {name} would be ignored; the options for TLS and SASL are "
            + ", ".join(one for one, _, _ in SECURITY_OPTIONS)
        )
    near = get_close_matches(lowered, NAMES, n=2) or get_close_matches(f"kafka.{lowered}", NAMES, n=1)
    if near:
        meant = " or ".join(NAMES[one].name for one in near)
        raise ConfigurationError(f"there is no option {name}; did you mean {meant}?")
    every = ", ".join(one.name for one in OPTIONS)
    raise ConfigurationError(f"there is no option {name}; the options are {every}")


def refuse_out_of_place(name: str, *, streaming: bool) -> None:
    """An option of streams in a batch read, or the other way round."""
    option = NAMES.get(name.lower())
    if option is None:
        return
    if option.scope is (Scope.BATCH if streaming else Scope.STREAM):
        here = "readStream" if streaming else "read"
        raise ConfigurationError(
            f"the option {option.name} is for {option.scope.value} and says nothing to {here}"
        )
