"""`flintmq produce` and `flintmq consume` against a real broker (Z1, F10)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker.broker_process import BrokerProcess, StartBroker, clean_environment, closed_port
from support.cli.command import TIMEOUT_S, Flintmq, run


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_as_they_went_with_every_codec(flintmq: Flintmq, topic: str, codec: str) -> None:
    lines = b"".join(b"line %d of many\n" % number for number in range(5_000))
    written = flintmq("produce", topic, "--codec", codec, "--json", stdin=lines).json
    assert written["records"] == 5_000
    assert flintmq("consume", topic, "--until-end").out.encode() == lines


def test_keys_headers_times_and_offsets_are_shown_on_request(flintmq: Flintmq, topic: str) -> None:
    flintmq(
        "produce", topic, "--key-separator", ":", "--header", "a=1", "--null", "-", stdin=b"k1:v1\nk2:-\n"
    )
    shown = flintmq("consume", topic, "--until-end", "--keys", "--headers", "--offsets", "--timestamps").out
    rows = [line.split("\t") for line in shown.splitlines()]
    assert [row[1:] for row in rows] == [["0", "0", "a=1", "k1", "v1"], ["0", "1", "a=1", "k2", "null"]]
    assert all(row[0].endswith("Z") for row in rows)
    first, second = flintmq("consume", topic, "--until-end", "--json").json_lines
    assert (first["key"], first["value"], first["headers"]) == ("k1", "v1", [{"name": "a", "value": "1"}])
    assert second["value"] is None
    assert flintmq("consume", topic, "--until-end", "--format", r"{offset}={key};").out == "0=k1;1=k2;"


def test_reading_begins_where_it_is_told_and_ends_after_so_many(flintmq: Flintmq, topic: str) -> None:
    flintmq("produce", topic, *"abcdef")

    def read(*args: str) -> str:
        return flintmq("consume", topic, "--until-end", "--format", "{value}", *args).out

    assert read("--from", "2") == "cdef"
    assert read("--from", "-2") == "ef"
    assert read("--from", "end") == ""
    assert read("--from", "-1h") == "abcdef"
    assert read("--from", "2999-01-01") == ""
    assert read("--max", "2") == "ab"
    refused = flintmq("consume", topic, "--from", "99", code=1)
    assert "it holds 0 to 5" in refused.error


def test_a_key_leads_to_its_partition_and_all_partitions_are_read(flintmq: Flintmq, topic: str) -> None:
    flintmq("topic", "alter", topic, "--partitions", "4")
    flintmq("produce", topic, "--key", "21", "keyed")
    flintmq("produce", topic, "--partition", "3", "placed")
    found = {
        one["value"]: one["partition"]
        for one in flintmq("consume", topic, "--until-end", "--json").json_lines
    }
    assert found == {"keyed": (-973932308 & 0x7FFFFFFF) % 4, "placed": 3}
    assert flintmq("consume", topic, "--until-end", "--partition", "3").out == "placed\n"
    assert "no partition 9" in flintmq("consume", topic, "--partition", "9", code=1).error
    assert "no partition 9" in flintmq("produce", topic, "x", "--partition", "9", code=1).error


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_writes(flintmq: Flintmq, topic: str, acks: str) -> None:
    flintmq("produce", topic, "v", "--acks", acks)
    assert flintmq("consume", topic, "--max", "1").out == "v\n"


def test_lines_of_a_file_are_records(flintmq: Flintmq, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\ntwo")
    told = flintmq("produce", topic, "--file", str(file)).error
    assert "2 records were written" in told
    assert flintmq("consume", topic, "--until-end").out == "one\ntwo\n"
    assert "cannot be read" in flintmq("produce", topic, "--file", str(tmp_path / "none"), code=1).error


@pytest.mark.parametrize(
    "args",
    [
        ["--key", "a", "--key-separator", ":"],
        ["--codec", "rar"],
        ["--acks", "2"],
        ["--header", "oops"],
        ["--file", "f", "message"],
    ],
)
def test_produce_refuses_options_that_make_no_sense(flintmq: Flintmq, args: list[str]) -> None:
    flintmq("produce", "t", *args, code=2)


@pytest.mark.parametrize(
    "args", [["--json", "--keys"], ["--format", "{nope}"], ["--from", "yesterday"], ["--max", "0"]]
)
def test_consume_refuses_options_that_make_no_sense(flintmq: Flintmq, topic: str, args: list[str]) -> None:
    flintmq("consume", topic, *args, code=2)


def test_a_line_without_the_separator_stops_the_writing_and_says_what_was_written(
    flintmq: Flintmq, topic: str
) -> None:
    ran = flintmq("produce", topic, "--key-separator", ":", stdin=b"oops\n", code=1)
    assert "without the separator" in ran.error


def test_a_record_larger_than_the_topic_takes_is_refused(flintmq: Flintmq, topic: str) -> None:
    flintmq("topic", "alter", topic, "--config", "max.message.bytes=1k")
    assert f"{topic}-0" in flintmq("produce", topic, stdin=b"x" * 2000, code=1).error
    flintmq("produce", topic, stdin=b"small enough for a record, too many for a batch\n" * 100)
    assert len(flintmq("consume", topic, "--until-end").out.splitlines()) == 100


def test_consuming_what_is_not_there_does_not_create_it(flintmq: Flintmq) -> None:
    assert "there is no topic" in flintmq("consume", "never-made", code=1).error
    assert all(one["name"] != "never-made" for one in flintmq("topic", "list", "--json").json)


def start_consumer(broker: BrokerProcess, *args: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "flintmq", "consume", *args, "-b", broker.address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())


def test_consume_waits_for_more_and_ends_cleanly_on_ctrl_c(
    shared_broker: BrokerProcess, flintmq: Flintmq, topic: str
) -> None:
    """B5."""
    flintmq("produce", topic, "first")
    consumer = start_consumer(shared_broker, topic)
    try:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"first\n"
        flintmq("produce", topic, "second")
        assert consumer.stdout.readline() == b"second\n"
        consumer.send_signal(signal.SIGINT)
        _, errors = consumer.communicate(timeout=TIMEOUT_S)
    finally:
        consumer.kill()
        consumer.wait()
    assert (consumer.returncode, errors) == (0, b"")


def test_consume_ends_cleanly_when_nobody_reads_on(
    shared_broker: BrokerProcess, flintmq: Flintmq, topic: str
) -> None:
    flintmq("produce", topic, stdin=b"some line\n" * 20_000)
    consumer = start_consumer(shared_broker, topic)
    try:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"some line\n"
        consumer.stdout.close()
        assert consumer.stderr is not None
        errors = consumer.stderr.read()
        code = consumer.wait(timeout=TIMEOUT_S)
    finally:
        consumer.kill()
        consumer.wait()
    assert (code, errors) == (0, b"")


def test_a_slow_writer_s_lines_are_written_one_by_one(shared_broker: BrokerProcess, topic: str) -> None:
    consumer = start_consumer(shared_broker, topic)
    command = [sys.executable, "-m", "flintmq", "produce", topic, "-b", shared_broker.address]
    producer = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()
    )
    try:
        assert producer.stdin is not None
        assert consumer.stdout is not None
        for line in (b"one\n", b"two\n"):
            producer.stdin.write(line)
            producer.stdin.flush()
            assert consumer.stdout.readline() == line
        producer.communicate(timeout=TIMEOUT_S)
        assert producer.returncode == 0
    finally:
        for process in (consumer, producer):
            process.kill()
            process.communicate()


def test_reading_and_writing_go_on_over_a_restart_of_the_broker(start_broker: StartBroker) -> None:
    port = closed_port()
    broker = start_broker("--port", str(port))
    run("produce", "t", "before", "-b", broker.address)
    consumer = start_consumer(broker, "t")
    try:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"before\n"
        assert broker.stop() == 0
        broker.start()
        run("produce", "t", "after", "-b", broker.address)
        assert consumer.stdout.readline() == b"after\n"
    finally:
        consumer.kill()
        consumer.communicate()
