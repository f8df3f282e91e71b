"""Which changes of listeners a running broker takes (KIP-226)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.settings import Alteration, AlterOperation, BrokerValues, alter_broker

FIRST = "PLAINTEXT://:9092"
MAP = "EXTERNAL:SASL_PLAINTEXT"


def altered(
    values: BrokerValues, changes: dict[str, str | None], *, per_broker: bool = True
) -> dict[str, str]:
    alterations = [
        Alteration(name, AlterOperation.DELETE if text is None else AlterOperation.SET, text)
        for name, text in changes.items()
    ]
    return alter_broker(values, alterations, per_broker=per_broker)


def refusal(values: BrokerValues, changes: dict[str, str | None], *, per_broker: bool = True) -> str:
    with pytest.raises(RequestError) as caught:
        altered(values, changes, per_broker=per_broker)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    return str(caught.value)


STARTED = BrokerValues(static={"listeners": FIRST})
WITH_EXTERNAL = BrokerValues(
    static={"listeners": FIRST},
    dynamic={
        "listeners": f"{FIRST},EXTERNAL://:9093",
        "listener.security.protocol.map": MAP,
        "listener.name.external.connections.max.reauth.ms": "60000",
    },
)


def test_a_listener_comes_with_all_its_settings_in_one_request() -> None:
    assert altered(STARTED, dict(WITH_EXTERNAL.dynamic)) == WITH_EXTERNAL.dynamic


def test_settings_that_stay_as_they_are_do_not_keep_others_from_changing() -> None:
    changed = altered(WITH_EXTERNAL, {"max.connections": "10"})
    assert changed == {**WITH_EXTERNAL.dynamic, "max.connections": "10"}


def test_a_listener_goes_with_or_without_its_settings_and_may_come_again_with_others() -> None:
    kept = altered(WITH_EXTERNAL, {"listeners": FIRST})
    assert "listener.name.external.connections.max.reauth.ms" in kept
    gone = altered(
        WITH_EXTERNAL, {"listeners": FIRST, "listener.name.external.connections.max.reauth.ms": None}
    )
    assert gone == {"listeners": FIRST, "listener.security.protocol.map": MAP}
    again = {
        "listeners": f"{FIRST},EXTERNAL://:9093",
        "listener.name.external.connections.max.reauth.ms": "1",
    }
    assert altered(BrokerValues(STARTED.static, dynamic=kept), dict(again)).items() >= again.items()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"listeners": f"{FIRST},OTHER://:9094"},
            "add OTHER:PLAINTEXT or another protocol to listener.security",
        ),
        ({"listeners": "EXTERNAL://:9093,PLAINTEXT://:9093"}, "different ports"),
        ({"listeners": "EXTERNAL://:9093,PLAINTEXT://127.0.0.1:9093"}, "different ports"),
        ({"listeners": ",".join(f"PLAINTEXT://:{port}" for port in range(1, 102))}, "at most 100"),
        ({"listeners": ""}, "at least one address"),
        ({"listeners": "9092"}, "NAME://host:port"),
        ({"listeners": f"{FIRST},SSL://:9094"}, "listener SSL"),
        ({"listener.security.protocol.map": "EXTERNAL:PLAINTEXT"}, "move the clients, and remove this one"),
        ({"listener.security.protocol.map": None}, "no security protocol for listener EXTERNAL"),
        ({"advertised.listeners": "OTHER://h:1"}, "not among the listeners; change both"),
        ({"advertised.listeners": "EXTERNAL://0.0.0.0:1"}, "no client can connect to"),
        (
            {"listener.name.external.connections.max.reauth.ms": "2"},
            "Cannot update these configs dynamically",
        ),
        (
            {"listener.name.external.connections.max.reauth.ms": None},
            "Cannot update these configs dynamically",
        ),
        ({"listener.name.rest.ssl.client.auth": "required"}, "restart the broker"),
        ({"listener.name.other.connections.max.reauth.ms": "2"}, "there is no listener OTHER"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_what_to_do(
    changes: dict[str, str | None], words: str
) -> None:
    assert words in refusal(WITH_EXTERNAL, changes)


def test_a_listener_that_is_advertised_goes_together_with_its_address() -> None:
    values = BrokerValues(
        {"listeners": f"{FIRST},EXTERNAL://:9093", "listener.security.protocol.map": MAP},
        dynamic={"advertised.listeners": "PLAINTEXT://a:1,EXTERNAL://b:2"},
    )
    assert "change both" in refusal(values, {"listeners": "EXTERNAL://:9093"})
    changes = {"listeners": "EXTERNAL://:9093", "advertised.listeners": "EXTERNAL://b:2"}
    assert altered(values, dict(changes)) == changes


def test_a_dynamic_setting_may_go_when_the_settings_of_the_start_say_the_same() -> None:
    values = BrokerValues(static={**WITH_EXTERNAL.dynamic}, dynamic=WITH_EXTERNAL.dynamic)
    assert altered(values, dict.fromkeys(WITH_EXTERNAL.dynamic)) == {}


@pytest.mark.parametrize("name", ["listeners", "listener.name.plaintext.connections.max.reauth.ms"])
def test_listeners_belong_to_one_broker(name: str) -> None:
    refusal(STARTED, {name: "1"}, per_broker=False)
