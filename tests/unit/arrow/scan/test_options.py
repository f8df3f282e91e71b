from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from flintmq.arrow.scan.offsets import FROM_EARLIEST, FROM_LATEST, OffsetsBound, TimestampBound
from flintmq.arrow.scan.option_list import OPTIONS
from flintmq.arrow.scan.options import Segments, SourceOptions, TopicSelection, parse
from flintmq.arrow.security_options import is_security_option
from flintmq.client.addresses import Address
from flintmq.errors import ConfigurationError

NEEDED = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t"}


def parsed(**options: str) -> SourceOptions:
    return parse({**NEEDED, **{name.replace("__", "."): value for name, value in options.items()}})


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse({**NEEDED, **options})
    return str(refused.value)


def test_the_least_that_must_be_said() -> None:
    options = parse(NEEDED)
    assert options.bootstrap == (Address("a", 1), Address("b", 2))
    assert options.topics == TopicSelection(names=("t",))
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert options.starting is None
    assert options.ending == FROM_LATEST
    assert options.fail_on_loss
    assert not options.read_committed


def test_names_have_no_case_and_values_keep_theirs() -> None:
    options = parse({"KAFKA.Bootstrap.SERVERS": "a:1", "SUBSCRIBE": "Ab, cD"})
    assert options.topics.names == ("Ab", "cD")


def test_options_travel_to_the_workers() -> None:
    options = parsed(startingOffsets='{"t": {"0": 5}}', minPartitions="7")
    assert pickle.loads(pickle.dumps(options)) == options


def test_every_option_of_the_list_is_understood() -> None:
    values = {
        "kafka.bootstrap.servers": "a:1",
        "subscribe": "t",
        "startingOffsets": "earliest",
        "startingTimestamp": "17",
        "startingOffsetsByTimestamp": '{"t": {"0": 17}}',
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsets": "latest",
        "endingTimestamp": "18",
        "endingOffsetsByTimestamp": '{"t": {"0": 18}}',
        "minPartitions": "2",
        "maxRecordsPerPartition": "3",
        "maxOffsetsPerTrigger": "4",
        "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "90s",
        "failOnDataLoss": "False",
        "includeHeaders": "TRUE",
        "columns": "headers,Value",
        "segments": "Never",
        "groupId": "g",
        "kafka.group.id": "g",
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "me",
        "kafka.request.timeout.ms": "6",
        "kafka.max.partition.fetch.bytes": "7",
        "kafka.check.crcs": "false",
        "kafkaConsumer.pollTimeoutMs": "8",
    }
    others = {"subscribePattern": "t.*", "assign": '{"t": [1, 0]}'}
    assert {*values, *others} == {one.name for one in OPTIONS if not is_security_option(one.name)}
    options = parse(values)
    assert options.starting == TimestampBound(17, {})
    assert options.ending == TimestampBound(18, {})
    assert options.late_start_is_latest
    assert (options.tasks_min, options.records_per_task_max) == (2, 3)
    assert (options.offsets_per_trigger_max, options.offsets_per_trigger_min) == (4, 5)
    assert options.trigger_delay_ms_max == 90_000
    assert not options.fail_on_loss
    assert options.columns == ("headers", "value")
    assert options.segments is Segments.NEVER
    assert options.group_id == "g"
    assert options.read_committed
    assert (options.client_id, options.request_timeout_ms, options.patience_ms) == ("me", 6, 8)
    assert options.fetch_bytes == 7
    assert not options.check_crc
    server = {"kafka.bootstrap.servers": "a"}
    assert parse({**server, "subscribePattern": "t.*"}).topics == TopicSelection(pattern="t.*")
    assert parse({**server, "assign": '{"t": [1, 0]}'}).topics == TopicSelection(
        partitions=(("t", 0), ("t", 1))
    )


def test_security_travels_with_its_references_and_is_not_shown() -> None:
    options = parse(
        {
            **NEEDED,
            "Kafka.Security.Protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": " hunter2 ",
            "kafka.ssl.ca.location": "${env:CA}",
        }
    )
    assert pickle.loads(pickle.dumps(options)).security.password == " hunter2 "
    assert options.security.tls.ca_location == "${env:CA}"
    assert "hunter2" not in repr(options)


def test_times_come_before_offsets() -> None:
    by_time = parsed(startingOffsets="earliest", startingOffsetsByTimestamp='{"t": {"0": 9}}')
    assert by_time.starting == TimestampBound(None, {("t", 0): 9})
    assert parsed(startingOffsets="EARLIEST").starting == FROM_EARLIEST
    assert parsed(startingOffsets='{"t": {"0": -2}}').starting == OffsetsBound({("t", 0): -2})


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [("15m", 900_000), ("2h", 7_200_000), ("1500", 1500), ("3 s", 3000), ("1d", 86_400_000)],
)
def test_delays_are_written_as_in_spark(text: str, delay_ms: int) -> None:
    assert parsed(maxTriggerDelay=text).trigger_delay_ms_max == delay_ms


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "x"}, "did you mean startingOffsets"),
        ({"bootstrap.servers": "a:1"}, "did you mean kafka.bootstrap.servers"),
        ({"minPartition": "1"}, "did you mean minPartitions"),
        ({"zzz": "1"}, "the options are kafka.bootstrap.servers, subscribe"),
        ({"path": "/x"}, "load() takes no path"),
        (
            {"kafka.sasl.kerberos.service.name": "x"},
            "the options for TLS and SASL are kafka.security.protocol",
        ),
        ({"kafka.security.protocol": "SMTP"}, "security.protocol=SMTP is not available"),
        ({"kafka.security.protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        ({"kafka.ssl.keystore.key": "-----BEGIN"}, "would be shown in Spark's plans"),
        ({"kafka.max.poll.records": "5000"}, "leave it out"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets says where to start"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is required"),
        ({"kafka.bootstrap.servers": "a:b"}, "expected host:port"),
        ({"subscribe": ""}, "none is given"),
        ({"subscribe": " , "}, "names of topics"),
        ({"assign": '{"t": [0]}'}, "not subscribe and assign together"),
        ({"subscribe": "", "subscribePattern": "("}, "not a regular expression"),
        ({"subscribe": "", "assign": '{"t": 0}'}, '{"topic": [0, 1]}'),
        ({"subscribe": "", "assign": '{"t": [-1]}'}, '{"topic": [0, 1]}'),
        ({"startingOffsets": "newest"}, "earliest, latest"),
        ({"startingOffsets": "{nonsense"}, "startingOffsets takes JSON"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "startingOffsets takes JSON"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "0 or more"),
        ({"endingOffsets": "earliest"}, "nothing would be read"),
        ({"startingTimestamp": "yesterday"}, "ms since 1970"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "none below 0"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "takes error or latest"),
        ({"minPartitions": "0"}, "a whole number above 0"),
        ({"maxOffsetsPerTrigger": "many"}, "a whole number above 0"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay cannot be 'soon'"),
        ({"failOnDataLoss": "yes"}, "takes true or false"),
        ({"kafka.isolation.level": "serializable"}, "takes read_uncommitted or read_committed"),
        ({"columns": "value,size"}, "takes some of key, value, topic"),
        ({"columns": "value", "includeHeaders": "true"}, "leaves headers out"),
        ({"groupId": "a", "kafka.group.id": "b"}, "give one of them"),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_right(options: dict[str, str], says: str) -> None:
    assert says in refusal(options)


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupId"]
)
def test_what_only_streams_have_is_refused_in_a_batch_read(name: str) -> None:
    options = parse({**NEEDED, name: "1"})
    assert options.for_stream() is options
    with pytest.raises(ConfigurationError, match=f"{name} is for readStream"):
        options.for_batch()


@pytest.mark.parametrize(
    ("name", "value"),
    [("endingOffsets", "latest"), ("endingTimestamp", "1"), ("endingOffsetsByTimestamp", "{}")],
)
def test_what_only_batch_reads_have_is_refused_in_a_stream(name: str, value: str) -> None:
    options = parse({**NEEDED, name: value})
    assert options.for_batch() is options
    with pytest.raises(ConfigurationError, match=f"{name} is for read and"):
        options.for_stream()


@pytest.mark.parametrize("starting", ["latest", '{"t": {"0": 3, "1": -1}}'])
def test_a_batch_read_does_not_start_at_the_end(starting: str) -> None:
    options = parsed(startingOffsets=starting)
    assert options.for_stream() is options
    with pytest.raises(ConfigurationError, match="cannot be latest"):
        options.for_batch()


def test_a_batch_read_does_not_end_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match="cannot be earliest"):
        parsed(endingOffsets='{"t": {"0": -2}}').for_batch()
