"""`flintmq serve`: start, stop, and the ways in which it fails."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from support.broker.broker_process import BrokerProcess, StartBroker
from support.cli.command import run


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
