"""`flintmq ping`, and every command where no broker answers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from support.broker.broker_process import BrokerProcess, StartBroker, clean_environment, closed_port
from support.cli.command import TIMEOUT_S, Flintmq, run


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
