"""The real command against a real broker: every command, and the ways in which each fails."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.broker.broker_process import BrokerProcess, StartBroker, clean_environment
from support.cli.command import TIMEOUT_S, Flintmq, Ran, run


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("command-line") / "data") as broker:
        yield broker


@pytest.fixture
def flintmq(shared_broker: BrokerProcess) -> Flintmq:
    """The command, told where the broker is."""

    def told(*args: str, stdin: bytes = b"", code: int = 0, env: Mapping[str, str] | None = None) -> Ran:
        return run(
            *args,
            stdin=stdin,
            code=code,
            env={"FLINTMQ_BOOTSTRAP_SERVERS": shared_broker.address, **(env or {})},
        )

    return told


@pytest.fixture
def topic(flintmq: Flintmq, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = str(request.node.name).replace("[", ".").replace("]", "")[:200]
    flintmq("topic", "create", name, "--partitions", "1")
    return name


def closed_port() -> int:
    """A port where nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


# ---- serve


def test_serve_says_ready_once_and_greets_people_on_standard_error(broker: BrokerProcess) -> None:
    assert broker.ready_line.startswith(f"ready 127.0.0.1:{broker.port} ")
    assert "FlintMQ" in broker.errors
    assert "only this machine can connect" in broker.errors
    assert str(broker.data_dir) in broker.errors
    with socket.create_connection((broker.host, broker.port), timeout=5):
        pass


def test_serve_stops_in_order_on_sigint_and_sigterm(start_broker: StartBroker) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        broker = start_broker()
        broker.process.send_signal(number)
        assert broker.wait() == 0


def test_serve_tells_what_recovery_did_after_a_crash(start_broker: StartBroker) -> None:
    broker = start_broker()
    run("produce", "t", "one", "-b", broker.address)
    broker.kill()
    segment = broker.data_dir / "t-0" / f"{0:020d}.log"
    with segment.open("ab") as file:
        file.write(b"torn")
    broker.start()
    assert "4 bytes that were never completely written cut off" in broker.errors
    assert run("consume", "t", "--until-end", "-b", broker.address).out == "one\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--set", "num.partitons=3"], "did you mean num.partitions?"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "oops"], "NAME=VALUE"),
        (["--config", "/nowhere/flint.yaml"], "cannot be read"),
        (["--port", "70000"], "70000"),
    ],
)
def test_serve_refuses_a_wrong_configuration_with_code_2(tmp_path: Path, args: list[str], words: str) -> None:
    ran = run("serve", "--data-dir", str(tmp_path / "data"), *args, code=2)
    assert words in ran.error
    assert ran.out == ""


def test_serve_refuses_an_unknown_environment_variable(tmp_path: Path) -> None:
    ran = run("serve", "--data-dir", str(tmp_path / "data"), code=2, env={"FLINTMQ_NUM_PARTITONS": "3"})
    assert "FLINTMQ_NUM_PARTITIONS" in ran.error


def test_serve_refuses_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    ran = run("serve", "--port", "0", "--data-dir", str(tmp_path / "file" / "data"), code=2)
    assert "Not a directory" in ran.error


def test_serve_says_that_the_port_is_taken(shared_broker: BrokerProcess, tmp_path: Path) -> None:
    ran = run("serve", "--port", str(shared_broker.port), "--data-dir", str(tmp_path / "data"), code=2)
    assert "--port" in ran.error


def test_serve_says_that_the_folder_is_taken(shared_broker: BrokerProcess) -> None:
    ran = run("serve", "--port", "0", "--data-dir", str(shared_broker.data_dir), code=2)
    assert "in use by another broker" in ran.error


def test_settings_come_from_the_command_line_then_the_environment_then_the_file(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """F9."""
    file = tmp_path / "flint.yaml"
    file.write_text("num.partitions: 2\nlog.retention.ms: 1h\nlog.segment.bytes: 1MB\n")
    broker = start_broker(
        "--settings", str(file), "--set", "num.partitions=4",
        env={"FLINTMQ_NUM_PARTITIONS": "3", "FLINTMQ_LOG_RETENTION_MS": "2h"},
    )  # fmt: skip
    run("topic", "create", "t", "-b", broker.address)
    described = run("topic", "describe", "t", "--json", "-b", broker.address).json
    assert len(described["partitions"]) == 4
    values = {one["name"]: one["value"] for one in described["settings"]}
    assert values == {"retention.ms": "7200000", "segment.bytes": "1048576"}


# ---- topics (R6)


def test_a_topic_lives_from_creation_to_deletion(flintmq: Flintmq) -> None:
    created = flintmq(
        *("topic", "create", "life", "--partitions", "3", "--replication-factor", "1"),
        *("--config", "retention.ms=7d", "--json"),
    ).json
    assert (created["partitions"], created["replication_factor"], created["created"]) == (3, 1, True)
    flintmq("produce", "life", "a", "b", "--partition", "2")
    (listed,) = (one for one in flintmq("topic", "list", "--json").json if one["name"] == "life")
    assert (listed["partitions"], listed["records"]) == (3, 2)
    assert listed["bytes"] > 0
    flintmq("topic", "alter", "life", "--config", "max.message.bytes=2MB", "--partitions", "5")
    flintmq("topic", "alter", "life", "--reset", "retention.ms")
    described = flintmq("topic", "describe", "life", "--json").json
    assert described["id"] == created["id"]
    assert len(described["partitions"]) == 5
    third = described["partitions"][2]
    assert (third["leader"], third["start"], third["end"]) == (0, 0, 2)
    assert described["settings"] == [{"name": "max.message.bytes", "value": "2097152", "source": "topic"}]
    flintmq("topic", "delete", "life")
    assert all(one["name"] != "life" for one in flintmq("topic", "list", "--json").json)


def test_topics_are_shown_as_aligned_text_where_no_terminal_is(flintmq: Flintmq, topic: str) -> None:
    flintmq("produce", topic, "a", "b")
    header, row = flintmq("topic", "list", f"{topic[:-1]}?").out.splitlines()
    assert header.split() == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE"]
    assert row.split()[:4] == [topic, "1", "1", "2"]
    described = flintmq("topic", "describe", topic).out
    assert "1 partition, 2 records" in described
    assert "\x1b" not in described


def test_topics_are_shown_in_colour_at_a_terminal(shared_broker: BrokerProcess, topic: str) -> None:
    ours, theirs = pty.openpty()
    try:
        environment = clean_environment(
            {"TERM": "xterm-256color", "FLINTMQ_BOOTSTRAP_SERVERS": shared_broker.address}
        )
        command = [sys.executable, "-m", "flintmq", "topic", "describe", topic]
        done = subprocess.run(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, timeout=TIMEOUT_S
        )
        shown = os.read(ours, 64 * 1024).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    assert "\x1b[" in shown
    assert "leader" in shown


def test_creating_a_topic_that_exists_fails_unless_that_is_said_to_be_fine(
    flintmq: Flintmq, topic: str
) -> None:
    assert "exist" in flintmq("topic", "create", topic, code=1).error
    again = flintmq("topic", "create", topic, "--if-not-exists", "--json").json
    assert (again["created"], again["partitions"]) == (False, 1)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["create", "bad/name"], 1, "bad/name"),
        (["create", "x", "--partitions", "0"], 2, "partitions"),
        (["create", "x", "--replication-factor", "9"], 1, "9"),
        (["create", "x", "--config", "retention.mss=1"], 2, "did you mean retention.ms"),
        (["create", "x", "--config", "retention.ms=soon"], 2, "retention.ms"),
        (["describe", "missing"], 1, "there is no topic missing"),
        (["alter", "missing", "--partitions", "3"], 1, "there is no topic missing"),
        (["alter", "missing"], 2, "nothing to change"),
        (["delete", "missing"], 1, "there is no topic missing"),
    ],
)
def test_a_wrong_wish_about_topics_says_what_is_wrong(
    flintmq: Flintmq, args: list[str], code: int, words: str
) -> None:
    assert words in flintmq("topic", *args, code=code).error


def test_partitions_cannot_become_fewer(flintmq: Flintmq, topic: str) -> None:
    flintmq("topic", "alter", topic, "--partitions", "3")
    assert "3" in flintmq("topic", "alter", topic, "--partitions", "2", code=1).error


def test_deleting_what_is_not_there_is_fine_if_said_so(flintmq: Flintmq) -> None:
    assert flintmq("topic", "delete", "missing", "--if-exists", "--json").json == {"deleted": []}


# ---- produce and consume (Z1, F10)


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


# ---- ping


def test_ping_tells_the_latency_the_cluster_and_its_features(
    flintmq: Flintmq, shared_broker: BrokerProcess
) -> None:
    found = flintmq("ping", "--json", "--count", "5").json
    assert found["latency_ms"]["min"] <= found["latency_ms"]["median"] <= found["latency_ms"]["max"]
    assert found["brokers"] == [{"id": 0, "address": shared_broker.address, "rack": None}]
    assert found["features"]["metadata.version"] > 0
    assert "answers in" in flintmq("ping").out


def test_ping_ends_with_1_if_nothing_answers() -> None:
    address = f"127.0.0.1:{closed_port()}"
    assert f"no broker answers at {address} (connection refused)" in run("ping", "-b", address, code=1).error


def test_ping_can_wait_for_a_broker_that_is_starting(start_broker: StartBroker) -> None:
    port = closed_port()
    command = [sys.executable, "-m", "flintmq", "ping", "--wait", "60", "--json", "-b", f"127.0.0.1:{port}"]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment())
    try:
        start_broker("--port", str(port))
        answer, _ = waiting.communicate(timeout=TIMEOUT_S)
    finally:
        waiting.kill()
        waiting.wait()
    assert waiting.returncode == 0
    assert json.loads(answer)["cluster_id"]


@pytest.mark.parametrize("args", [["topic", "list"], ["produce", "t", "v"], ["consume", "t"]])
def test_every_other_command_ends_with_3_if_nothing_answers(args: list[str]) -> None:
    ran = run(*args, "-b", f"127.0.0.1:{closed_port()}", code=3)
    assert "flintmq serve" in ran.error
    assert "--bootstrap-server" in ran.error


def test_what_does_not_speak_kafka_is_not_taken_for_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-m", "flintmq", "ping", "-b", f"127.0.0.1:{server.getsockname()[1]}"]
        asking = subprocess.Popen(command, stderr=subprocess.PIPE, env=clean_environment())
        connection, _ = server.accept()
        with connection:
            connection.recv(1024)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            _, errors = asking.communicate(timeout=TIMEOUT_S)
    assert asking.returncode == 1
    assert b"does not speak Kafka" in errors


def test_an_address_that_is_none_is_a_usage_error() -> None:
    assert "host:port" in run("ping", "-b", "nonsense:port", code=2).error


# ---- config and version


def test_config_lists_value_source_and_meaning_of_every_setting(tmp_path: Path) -> None:
    """B10, R9."""
    file = tmp_path / "flint.toml"
    file.write_text('"log.segment.bytes" = "2MB"\n')
    rows = run(
        "config", "--json", "--set", "num.partitions=7", "--config", str(file), env={"RETENTION": "1h"}
    ).json  # fmt: skip
    found = {row["name"]: row for row in rows}
    assert (found["num.partitions"]["value"], found["num.partitions"]["source"]) == (
        "7", "num.partitions on the command line",
    )  # fmt: skip
    assert found["log.retention.ms"]["value"] == "3600000"
    assert "RETENTION" in found["log.retention.ms"]["source"]
    assert str(file) in found["log.segment.bytes"]["source"]
    assert found["auto.create.topics.enable"]["source"] == "default"
    assert all(row["meaning"] for row in rows)


def test_config_selects_by_name_and_by_change() -> None:
    assert [row["name"] for row in run("config", "num.part*", "--json").json] == ["num.partitions"]
    assert [row["name"] for row in run("config", "--changed", "--json", "--port", "0").json] == ["listeners"]
    topics = run("config", "--topic", "retention.ms", "--json", "--set", "log.retention.hours=2").json
    (retention,) = (row for row in topics if row["name"] == "retention.ms")
    assert retention["value"] == "7200000"
    assert run("config", "xyzzy").error.strip() == "No setting has a name like xyzzy."


def test_config_refuses_what_serve_would_refuse() -> None:
    assert "did you mean" in run("config", "--set", "num.partitons=1", code=2).error


def test_version_is_told() -> None:
    version = run("version", "--json").json["version"]
    assert version in run("version").out
    assert version in run("--version").out


# ---- dump-log


def test_dump_log_shows_a_stopped_broker_s_files_and_finds_damage(start_broker: StartBroker) -> None:
    """S5."""
    broker = start_broker("--set", "log.segment.bytes=1MB", "--set", "log.index.interval.bytes=4k")
    lines = b"".join(b"%0100d\n" % number for number in range(30_000))
    run("produce", "t", "--header", "h=1", "-b", broker.address, stdin=lines)
    assert broker.stop() == 0
    data = str(broker.data_dir)
    assert "all sound" in run("dump-log", data).out
    reports = [one for one in run("dump-log", data, "--json").json_lines if one["type"] == "file"]
    kinds = {one["kind"] for one in reports}
    assert kinds == {
        "segment", "offset index", "time index", "producer snapshot", "leader epochs", "offset checkpoint",
    }  # fmt: skip
    assert sum(one["records"] for one in reports if one["kind"] == "segment") == 30_000
    segment = broker.data_dir / "t-0" / f"{0:020d}.log"
    shown = run("dump-log", str(segment), "--records", "--json").json_lines
    (first, *_) = (one for one in shown if one["type"] == "record")
    assert (first["offset"], first["value"], first["headers"]) == (
        0,
        f"{0:0100d}",
        [{"name": "h", "value": "1"}],
    )
    assert "value" in run("dump-log", str(segment), "--records").out

    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    damaged = run("dump-log", data, code=1)
    assert "fails its CRC" in damaged.out
    assert "1 damaged" in damaged.out


def test_dump_log_refuses_what_is_no_log(tmp_path: Path) -> None:
    assert "holds no files" in run("dump-log", str(tmp_path), code=1).error
    assert "No such file" in run("dump-log", str(tmp_path / f"{0:020d}.log"), code=1).error
    other = tmp_path / "notes.txt"
    other.write_text("x")
    assert "not the name" in run("dump-log", str(other), code=1).error
