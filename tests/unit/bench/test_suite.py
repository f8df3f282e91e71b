"""Rounds, failures and the command itself."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from bench import machine
from bench.__main__ import main
from bench.figures import Figure, Kind
from bench.peers import BrokerHome, FlintPeer, kafka_settings
from bench.process import Broker
from bench.suite import Plan, run
from bench.workloads import WORKLOADS, Target, Workload

pytestmark = pytest.mark.skipif(not machine.is_supported(), reason="toolchain: /proc, which only Linux has")


def plan_of(folder: Path, *workloads: Workload, rounds: int = 1) -> Plan:
    return Plan(workloads, rounds=rounds, scale=0.001, recovery_gb=0.001, folder=str(folder), warm=False)


def test_rounds_are_interleaved_and_a_dead_broker_is_replaced(tmp_path: Path) -> None:
    brokers: list[Broker] = []

    def crash(target: Target) -> list[Figure]:
        brokers.append(target.broker)
        target.broker.kill()
        raise ConnectionError("the broker is dead")

    def count(target: Target) -> list[Figure]:
        brokers.append(target.broker)
        assert target.broker.is_running
        return [Figure("brokers", len(brokers), "", Kind.COUNT)]

    affinity = os.sched_getaffinity(0)
    plan = plan_of(tmp_path, Workload("crash", "dies", crash), Workload("count", "lives", count), rounds=2)
    results = run([FlintPeer()], plan, say=lambda _: None)

    assert [(one.round, one.workload) for one in results.measurements] == [
        (1, "crash"),
        (1, "count"),
        (2, "crash"),
        (2, "count"),
    ]
    assert [one.error for one in results.errors] == ["ConnectionError: the broker is dead"] * 2
    assert brokers[0] is not brokers[1]
    assert brokers[1] is brokers[2]
    assert not any(broker.is_running for broker in brokers)
    assert os.sched_getaffinity(0) == affinity


def test_a_bug_in_a_workload_still_ends_the_brokers(tmp_path: Path) -> None:
    brokers: list[Broker] = []

    def stumble(target: Target) -> list[Figure]:
        brokers.append(target.broker)
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        run([FlintPeer()], plan_of(tmp_path, Workload("bug", "", stumble)), say=lambda _: None)
    assert not brokers[0].is_running


def test_command_writes_json_and_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "out.json", tmp_path / "tables.md"
    arguments = ["--flintmq-only", "--cold", "--rounds", "2", "--scale", "0.001", "--only", "ping,raw-16k"]
    arguments += ["--folder", str(tmp_path), "--out", str(out), "--markdown", str(page)]
    assert main(arguments) == 0
    document = json.loads(out.read_text())
    assert {one["workload"] for one in document["table"]} == {"ping", "raw-16k"}
    assert [one["round"] for one in document["measurements"]] == [1, 1, 2, 2]
    assert "## raw-16k" in page.read_text()
    assert "produce: CPU per GB" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "tables.md"]


def test_without_java_flintmq_is_measured_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = ["--cold", "--rounds", "1", "--scale", "0.001", "--only", "ping", "--folder", str(tmp_path)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "Java is not installed" in said
    assert "FlintMQ runs alone" in said


def test_list_names_every_workload(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()] == [workload.name for workload in WORKLOADS]


def test_unknown_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "no-such-thing"]) == 2
    assert "--list" in capsys.readouterr().out


def test_kafka_is_one_node_on_the_given_ports() -> None:
    settings = dict(
        line.split("=", 1) for line in kafka_settings(BrokerHome("/data", 1111, 2222, 3333)).splitlines()
    )
    assert settings["process.roles"] == "broker,controller"
    assert "PLAINTEXT://127.0.0.1:1111" in settings["advertised.listeners"]
    assert settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:2222"
    assert settings["log.dirs"] == "/data/data"


def make_checkout(directory: Path) -> Path:
    """Make a checkout whose `.venv` runs the code of this one."""
    python = directory / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return directory


def test_another_checkout_is_measured_beside_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout, out = make_checkout(tmp_path / "other"), tmp_path / "out.json"
    arguments = ["--flintmq-only", "--cold", "--rounds", "2", "--scale", "0.001", "--only", "ping,start"]
    arguments += ["--peer", f"old={checkout}", "--folder", str(tmp_path), "--out", str(out)]
    assert main(arguments) == 0
    document = json.loads(out.read_text())
    order = [(one["round"], one["workload"], one["broker"]) for one in document["measurements"]]
    assert order == [
        (1, "ping", "FlintMQ"),
        (1, "ping", "old"),
        (1, "start", "FlintMQ"),
        (1, "start", "old"),
        (2, "ping", "old"),
        (2, "ping", "FlintMQ"),
        (2, "start", "old"),
        (2, "start", "FlintMQ"),
    ]
    assert all(one["cost_ratios"]["old"] > 0 for one in document["table"] if one["workload"] == "start")
    assert "~elapsed ÷ old" in capsys.readouterr().out


def test_a_checkout_without_an_environment_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--flintmq-only", "--only", "ping", "--peer", f"old={tmp_path}"]) == 1
    assert "has no .venv" in capsys.readouterr().out


@pytest.mark.parametrize("peer", ["old", "=/tmp", "old=", "kafka=/tmp", "a/b=/tmp"])
def test_a_peer_is_a_name_and_a_directory(peer: str) -> None:
    with pytest.raises(SystemExit):
        main(["--peer", peer])
