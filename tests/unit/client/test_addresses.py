from __future__ import annotations

import pytest

from flintmq.client.addresses import Address, parse_address, parse_addresses
from flintmq.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9095", Address("localhost", 9095)),
        ("localhost", Address("localhost", 9092)),
        ("[::1]:9095", Address("::1", 9095)),
        ("[::1]", Address("::1", 9092)),
        ("fe80::1", Address("fe80::1", 9092)),
    ],
)
def test_an_address_has_a_host_and_kafkas_port_unless_it_names_another(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


def test_a_list_keeps_its_order_and_drops_what_comes_twice() -> None:
    assert parse_addresses("b:1, a:2,b:1,") == [Address("b", 1), Address("a", 2)]


@pytest.mark.parametrize("text", ["", ",", ":9092", "host:port", "host:0", "host:65536", "[::1", "[::1]9092"])
def test_what_is_no_address_is_a_usage_error_that_shows_the_form(text: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        parse_addresses(text)
