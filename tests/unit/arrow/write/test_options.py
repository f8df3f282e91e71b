"""Options and columns of the sink: understood, or refused with what to write instead."""

from __future__ import annotations

import pickle

import pytest

from flintmq.arrow.write.options import LEDGER_TOPIC, SINK_OPTIONS, SinkOptions, parse_sink
from flintmq.errors import ConfigurationError
from flintmq.records.compression import Codec

SERVERS = {"kafka.bootstrap.servers": "a:9092,b:9093"}


def test_defaults() -> None:
    options = parse_sink(SERVERS, streaming=True)
    assert [address.port for address in options.bootstrap] == [9092, 9093]
    assert options.topic is None
    assert options.codec is Codec.NONE
    assert options.transaction_timeout_ms is None
    assert options.ledger_topic == LEDGER_TOPIC
    assert not options.rewrites_torn
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_have_no_case_and_every_option_is_read() -> None:
    given = SERVERS | {
        "TOPIC": "t",
        "kafka.compression.TYPE": "ZSTD",
        "kafka.batch.size": "1000",
        "kafka.transaction.timeout.ms": "5000",
        "kafka.request.timeout.ms": "2500",
        "kafka.delivery.timeout.ms": "7000",
        "kafka.client.id": "me",
        "kafka.acks": "-1",
        "ledgerTopic": "l",
        "onTornBatch": "rewrite",
        "checkpointLocation": "/somewhere",
    }
    assert parse_sink(given, streaming=True) == SinkOptions(
        parse_sink(SERVERS, streaming=True).bootstrap,
        topic="t",
        codec=Codec.ZSTD,
        batch_bytes=1000,
        request_timeout_s=2.5,
        patience_s=7.0,
        transaction_timeout_ms=5000,
        client_id="me",
        ledger_topic="l",
        rewrites_torn=True,
    )
    assert parse_sink(SERVERS | {"writeId": "w"}, streaming=False).write_id == "w"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topick": "t"}, "did you mean topic?"),
        ({"subscribe": "t"}, "the sink has no option subscribe; It has kafka.bootstrap.servers"),
        ({"kafka.acks": "1"}, "kafka.acks must be all or -1, not 1"),
        ({"kafka.security.protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        ({"kafka.batch.size": "0"}, "at least 1"),
        ({"kafka.batch.size": "many"}, "at least 1"),
        ({"onTornBatch": "ignore"}, "fail or rewrite"),
        ({"writeId": "w"}, "writeId is for batch writes"),
        ({"kafka.bootstrap.servers": ""}, "is required"),
    ],
)
def test_what_is_wrong_is_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason.replace("?", r"\?")):
        parse_sink(SERVERS | given, streaming=True)


def test_option_names_are_unique_whatever_their_case() -> None:
    names = [option.name.lower() for option in SINK_OPTIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([("value", "binary"), ("offset", "bigint")], "no column offset; it takes key"),
        ([("value", "int")], "value is int and should be binary or string: cast it"),
        ([("value", "string"), ("partition", "bigint")], "partition is bigint and should be int"),
        ([("key", "string")], "no column value"),
        ([("value", "string")], "no topic: set the option topic, or have a column topic"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        parse_sink(SERVERS, streaming=True).check_columns(columns)


def test_all_columns_of_the_sink_are_taken() -> None:
    parse_sink(SERVERS, streaming=True).check_columns(
        [
            ("key", "string"),
            ("value", "binary"),
            ("topic", "string"),
            ("partition", "int"),
            ("headers", "array<struct<key:string,value:binary>>"),
        ]
    )
