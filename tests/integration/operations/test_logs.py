"""The log of a real broker: bad clients named but not without end, JSON in a file, levels while it runs (S11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flintmq.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from flintmq.server.closed_connections import LOGGED_MAX
from support.broker.broker_process import BrokerFailed, BrokerProcess, StartBroker
from support.wire.wire import Wire

QUIET = ("--set", "flint.rest.port=-1")
BROKER, BROKER_LOGGER = 4, 8
SET = 0


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def misbehave(broker: BrokerProcess, times: int = 1) -> None:
    for _ in range(times):
        with Wire(broker.address) as bad:
            bad.sock.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            assert bad.is_closed_by_the_broker()


def set_config(broker: BrokerProcess, kind: int, name: str, value: str) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=SET, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name="0", configs=[change]
    )
    with Wire(broker.address) as wire:
        response = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert isinstance(response, IncrementalAlterConfigsResponse)
        assert response.responses[0].error_code == 0, response.responses[0].error_message


def test_a_client_that_misbehaves_again_and_again_is_named_a_few_times(start_broker: StartBroker) -> None:
    broker = start_broker(*QUIET)
    misbehave(broker, times=50)
    assert broker.stop() == 0
    named = [line for line in broker.errors.splitlines() if "closing the connection of 127.0.0.1:" in line]
    assert len(named) == LOGGED_MAX
    assert all("this is HTTP" in line for line in named)


def test_the_file_has_json_with_the_peer(start_broker: StartBroker, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "broker.json"
    broker = start_broker(*QUIET, "--set", f"flint.log.file={path}")
    misbehave(broker)
    assert broker.stop() == 0
    (line,) = [line for line in lines_of(path) if line["level"] == "WARNING"]
    assert line["logger"] == "flintmq.server.connection"
    assert line["peer"].startswith("127.0.0.1:")
    assert line["reason"] == "frame"
    assert "closing the connection" in broker.errors, "people see it too"


def test_standard_error_as_json(start_broker: StartBroker) -> None:
    broker = start_broker(*QUIET, "--set", "flint.log.format=json")
    misbehave(broker)
    assert broker.stop() == 0
    (line,) = [json.loads(line) for line in broker.errors.splitlines() if line.startswith("{")]
    assert line["level"] == "WARNING"


def test_levels_change_while_the_broker_runs(start_broker: StartBroker) -> None:
    """KIP-226 for the whole broker, KIP-412 for one module."""
    broker = start_broker(*QUIET)
    set_config(broker, BROKER, "flint.log.level", "ERROR")
    misbehave(broker)
    assert "closing the connection" not in broker.errors
    set_config(broker, BROKER_LOGGER, "flintmq.server.connection", "WARN")
    misbehave(broker)
    assert broker.stop() == 0
    assert broker.errors.count("closing the connection") == 1


def test_a_level_that_was_set_is_kept_over_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(*QUIET)
    set_config(broker, BROKER, "flint.log.level", "ERROR")
    assert broker.stop() == 0
    broker.start()
    misbehave(broker)
    assert broker.stop() == 0
    assert "closing the connection" not in broker.errors


def test_a_log_file_that_cannot_be_is_a_mistake_in_the_settings(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerFailed, match="ended with code 2") as failed:
        start_broker(*QUIET, "--set", f"flint.log.file={tmp_path}/file/broker.log")
    assert "Traceback" not in str(failed.value)


def test_a_profile_is_written_at_the_stop(start_broker: StartBroker) -> None:
    broker = start_broker(*QUIET, env={"PROFILE": "true"})
    with Wire(broker.address) as wire:
        wire.create_topic("t")
        for _ in range(500):
            wire.metadata("t")
    assert broker.stop() == 0
    assert "flintmq." in (broker.data_dir / "profile.folded").read_text()
    assert (broker.data_dir / "profile.svg").read_text().startswith("<svg")
    broker.start()
    with Wire(broker.address) as wire:
        assert [topic.name for topic in wire.metadata().topics] == ["t"], "the folder is as good as before"
