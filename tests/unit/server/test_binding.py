"""Bound sockets: ports, addresses, and what cannot be bound."""

from __future__ import annotations

import errno
import socket

import pytest

from flintmq.errors import ConfigurationError
from flintmq.server import binding
from flintmq.server.binding import bind_all
from flintmq.settings import Listener
from flintmq.settings.listeners import parse_listeners
from support.broker.ipv6 import needs_ipv6


@needs_ipv6
def test_port_0_is_the_same_free_port_for_all_addresses_of_a_name() -> None:
    bound = bind_all(parse_listeners("A://127.0.0.1:0,A://[::1]:0,B://127.0.0.1:0"))
    try:
        ports = [listener.port for _, listener, _ in bound]
        assert ports[0] == ports[1] != ports[2]
        assert 0 not in ports
    finally:
        for _, _, sock in bound:
            sock.close()


def test_an_address_that_comes_again_with_port_0_gets_another_port() -> None:
    bound = bind_all([Listener("A", "127.0.0.1", 0), Listener("A", "127.0.0.1", 0)])
    ports = {listener.port for _, listener, _ in bound}
    for _, _, sock in bound:
        sock.close()
    assert len(ports) == 2


@needs_ipv6
def test_a_chosen_port_that_is_taken_for_the_other_address_is_chosen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real_bind = binding._bind
    taken: list[int] = []

    def bind(listener: Listener, port: int, *, optional: bool) -> socket.socket | None:
        if listener.host == "::1" and not taken:
            taken.append(port)
            raise binding.ListenerPortTaken(listener, "taken")
        return real_bind(listener, port, optional=optional)

    monkeypatch.setattr(binding, "_bind", bind)
    bound = bind_all(parse_listeners("A://127.0.0.1:0,A://[::1]:0"))
    for _, _, sock in bound:
        sock.close()
    assert len(bound) == 2
    assert taken


def test_a_port_in_use_is_an_error_that_says_what_to_do() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match="choose another port"):
            bind_all([Listener("A", "127.0.0.1", 0), Listener("B", "127.0.0.1", port)])
        with pytest.raises(ConfigurationError, match=f"A://127.0.0.1:{port}"):
            bind_all([Listener("A", "127.0.0.1", port)])


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="Cannot listen on"):
        bind_all([Listener("A", "192.0.2.1", 0)])


def test_a_missing_ipv6_loopback_is_no_error_if_there_is_another_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real_socket = socket.socket

    def without_ipv6(family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no IPv6")
        return real_socket(family, kind)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    bound = bind_all(parse_listeners("A://127.0.0.1:0,A://[::1]:0"))
    for _, _, sock in bound:
        sock.close()
    assert [listener.host for _, listener, _ in bound] == ["127.0.0.1"]
    with pytest.raises(ConfigurationError):
        bind_all(parse_listeners("A://[::1]:0"))
