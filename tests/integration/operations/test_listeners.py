"""Addresses: where the broker listens, and which address a client is told (N8, B10)."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest

from flintmq.protocol.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from support.broker.broker_process import BrokerFailed, BrokerProcess, StartBroker
from support.wire.wire import Wire

TIMEOUT_S = 30.0


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="toolchain: this machine has no IPv6 loopback")


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, for settings that must name them."""
    with ExitStack() as held:
        socks = [held.enter_context(socket.socket()) for _ in range(count)]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in socks]


def told(address: str) -> list[tuple[str, int]]:
    """The brokers' addresses as a client that came by `address` is told them, by every API that says so."""
    with Wire(address) as wire:
        metadata = wire.ask(MetadataRequest(topics=[]), 12)
        assert isinstance(metadata, MetadataResponse)
        cluster = wire.ask(DescribeClusterRequest(), 0)
        assert isinstance(cluster, DescribeClusterResponse)
    found = [(broker.host, broker.port) for broker in metadata.brokers]
    assert found == [(broker.host, broker.port) for broker in cluster.brokers]
    return found


def test_a_client_is_told_the_address_it_used(broker: BrokerProcess) -> None:
    assert told(f"127.0.0.1:{broker.port}") == [("127.0.0.1", broker.port)]


@needs_ipv6
def test_an_ipv6_client_is_told_the_ipv6_address(broker: BrokerProcess) -> None:
    assert told(f"[::1]:{broker.port}") == [("::1", broker.port)]
    assert broker.addresses == [f"127.0.0.1:{broker.port}", f"[::1]:{broker.port}"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", pytest.param("[::1]", marks=needs_ipv6)])
def test_a_real_client_works_whichever_name_it_uses(broker: BrokerProcess, host: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": f"{host}:{broker.port}"})
    errors: list[object] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]


@needs_ipv6
def test_every_interface_serves_both_families_and_tells_each_its_own(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "listeners=PLAINTEXT://:0")
    assert told(f"127.0.0.1:{broker.port}") == [("127.0.0.1", broker.port)]
    assert told(f"[::1]:{broker.port}") == [("::1", broker.port)]


def test_advertised_listeners_are_told_as_configured(start_broker: StartBroker) -> None:
    broker = start_broker(
        *("--set", "listeners=PLAINTEXT://127.0.0.1:0"),
        *("--set", "advertised.listeners=PLAINTEXT://kafka.example.org:19092"),
    )
    assert told(broker.address) == [("kafka.example.org", 19092)]


def test_each_listener_tells_its_own_address(start_broker: StartBroker) -> None:
    broker = start_broker(
        *("--set", "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0,LOCAL://127.0.0.1:0"),
        *("--set", "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,LOCAL:PLAINTEXT"),
        *("--set", "advertised.listeners=INSIDE://broker-1:9092,OUTSIDE://203.0.113.7:443"),
    )
    inside, outside, local = broker.addresses
    assert told(inside) == [("broker-1", 9092)]
    assert told(outside) == [("203.0.113.7", 443)]
    assert told(local) == [("127.0.0.1", int(local.rpartition(":")[2]))]


def test_several_ports_serve_the_same_broker(start_broker: StartBroker) -> None:
    """B10: `broker_ports: [9092, 9094]`."""
    ports = free_ports(2)
    broker = start_broker("--set", f"broker_ports={ports[0]},{ports[1]}")
    with Wire(f"127.0.0.1:{ports[0]}") as first, Wire(f"127.0.0.1:{ports[1]}") as second:
        first.create_topic("t")
        assert [topic.name for topic in second.metadata().topics] == ["t"]
    assert told(f"127.0.0.1:{ports[1]}") == [("127.0.0.1", ports[1])]
    assert {int(address.rpartition(":")[2]) for address in broker.addresses} == set(ports)


def test_a_port_in_use_is_said_plainly(broker: BrokerProcess, tmp_path: Path) -> None:
    second = BrokerProcess(tmp_path / "second", ["--port", str(broker.port)])
    with pytest.raises(BrokerFailed, match="choose another port"):
        second.start()
    assert "Traceback" not in second.errors
