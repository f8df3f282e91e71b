"""Every workload, at a tiny scale, against a real FlintMQ: it ends, its figures make sense, it clears up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import machine, rdkafka
from bench.figures import Kind
from bench.machine import Cores
from bench.peers import FlintPeer
from bench.process import METADATA_VERSION, Broker
from bench.tls import make_certificates
from bench.workloads import WORKLOADS, Target, Workload
from flintmq.protocol.messages import MetadataRequest, MetadataResponse

pytestmark = pytest.mark.skipif(not machine.is_supported(), reason="toolchain: /proc, which only Linux has")

SCALE = 0.001
RECOVERY_GB = 0.002


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("bench") / "main"
    tls = make_certificates(str(folder.parent / "certificates"))
    with Broker(FlintPeer(), str(folder), Cores.available(), tls) as broker:
        broker.start()
        yield broker


def topics_of(broker: Broker) -> list[str | None]:
    with Target(broker, SCALE, RECOVERY_GB).connect() as connection:
        answer = connection.call(MetadataRequest(topics=None), MetadataResponse, METADATA_VERSION)
    return [topic.name for topic in answer.topics]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_workload_yields_sane_figures_and_leaves_nothing_behind(workload: Workload, broker: Broker) -> None:
    if workload.needs_librdkafka and not rdkafka.is_available():
        pytest.skip("toolchain: confluent-kafka with produce_batch")
    figures = workload.run(Target(broker, SCALE, RECOVERY_GB))
    assert figures
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert math.isfinite(figure.value), figure
        if figure.kind is Kind.CPU:
            assert figure.value >= 0, figure
        elif figure.name == "backlog":
            assert 0 <= figure.value < 60_000
        elif figure.name != "memory for each":
            # A connection's memory may come from what the broker had to spare.
            assert figure.value > 0, figure
    # Groups and transactions have their coordinators make these.
    assert set(topics_of(broker)) <= {"__consumer_offsets", "__transaction_state"}


def test_workloads_have_names_of_their_own() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)


def test_broker_is_gone_after_its_block(tmp_path: Path) -> None:
    with Broker(FlintPeer(), str(tmp_path / "main"), Cores.available()) as broker:
        assert 0 < broker.start() < 60
        assert broker.anonymous_bytes() > 1_000_000
        assert broker.cpu_s() > 0
    assert not broker.is_running
    assert not (tmp_path / "main").exists()
