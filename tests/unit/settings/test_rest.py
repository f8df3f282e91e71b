"""The settings of the HTTP port taken together."""

from __future__ import annotations

import pytest

from flintmq.errors import ConfigurationError
from flintmq.settings import load, parse_broker_config
from flintmq.settings.rest import rest_is_restricted

TLS = {"flint.rest.security.protocol": "SSL", "listener.name.rest.ssl.keystore.location": "/k.pem"}
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "10.0.0.7", "broker.example"])
def test_the_network_needs_authentication_or_an_explicit_word(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"flint\.rest\.allow\.unauthenticated=true"):
        parse_broker_config({"flint.rest.host": host})
    for more in (
        {"flint.rest.allow.unauthenticated": "true"},
        {"flint.rest.authentication": "basic"},
        {"flint.rest.port": "-1"},
    ):
        assert parse_broker_config({"flint.rest.host": host, **more}).flint_rest_host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_needs_neither(host: str) -> None:
    assert not rest_is_restricted(parse_broker_config({"flint.rest.host": host}))


def test_an_authorizer_restricts_the_pages_too() -> None:
    settings = {"authorizer.class.name": STANDARD}
    assert rest_is_restricted(parse_broker_config(settings))
    opened = {**settings, "flint.rest.allow.unauthenticated": "true"}
    assert not rest_is_restricted(parse_broker_config(opened))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"flint.rest.authentication": "basic", "flint.rest.allow.unauthenticated": "true"}, "contradict"),
        ({"flint.rest.authentication": "certificate"}, r"needs flint\.rest\.security\.protocol=SSL"),
        ({**TLS, "flint.rest.authentication": "certificate"}, r"ssl\.client\.auth=requested"),
        ({"flint.rest.security.protocol": "SSL"}, r"HTTP port.*needs a certificate"),
        (
            {**TLS, "listeners": "REST://:1", "listener.security.protocol.map": "REST:PLAINTEXT"},
            "another name",
        ),
        ({"flint.rest.authentication": "kerberos"}, "basic, bearer, certificate"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        parse_broker_config(settings)


def test_settings_of_a_listener_are_taken_for_the_http_port() -> None:
    loaded = load(command_line=list(TLS.items()))
    assert loaded.broker.listener_overrides["REST", "ssl.keystore.location"] == "/k.pem"
