"""Client settings for security, from properties and the environment."""

from __future__ import annotations

import pytest

from flintmq.client.sasl import sasl_client
from flintmq.client.security import (
    ClientSecurity,
    environment_properties,
    parse_properties,
    parse_security,
)
from flintmq.errors import ConfigurationError

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="s3cret";'


def test_nothing_means_plaintext() -> None:
    assert parse_security({}) == ClientSecurity("PLAINTEXT")
    assert not parse_security({"acks": "all"}).has_sasl


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_settings_of_librdkafka(name: str) -> None:
    properties = {
        "security.protocol": "sasl_plaintext", name: "PLAIN", "sasl.username": "a", "sasl.password": "p",
    }  # fmt: skip
    assert parse_security(properties) == ClientSecurity("SASL_PLAINTEXT", "PLAIN", "a", "p")


def test_settings_of_java_clients() -> None:
    text = "\n".join(
        (
            "# how to connect",
            "security.protocol = SASL_PLAINTEXT",
            "sasl.mechanism:SCRAM-SHA-512",
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\",
            '    username="alice" \\',
            '    password="s3cret";',
            "",
        )
    )
    found = parse_security(parse_properties(text))
    assert found == ClientSecurity("SASL_PLAINTEXT", "SCRAM-SHA-512", "alice", "s3cret")
    assert "s3cret" not in repr(found)


def test_properties_as_java_reads_them() -> None:
    text = "a=1\nb : 2\nc 3\n! no\nd=x\\\n  y\ne=back\\\\slash \\u0041\nempty=\n"
    assert parse_properties(text) == {
        "a": "1", "b": "2", "c": "3", "d": "xy", "e": "back\\slash A", "empty": "",
    }  # fmt: skip


def test_the_environment() -> None:
    found = environment_properties(
        {"FLINTMQ_SASL_USERNAME": "a", "FLINTMQ_SASL_JAAS_CONFIG": JAAS, "HOME": "/"}
    )
    assert found == {"sasl.username": "a"}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "SMTP"}, "security.protocol=SMTP"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "needs sasl.mechanism"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}, "GSSAPI is not available"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "needs sasl.username"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"},
            "sasl.jaas.config: expected",
        ),
    ],
)
def test_mistakes_say_what_to_do(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_security(properties)


@pytest.mark.parametrize(("mechanism", "user"), [("PLAIN", "a\0b"), ("SCRAM-SHA-256", "ä"), ("X", "a")])
def test_logins_that_a_mechanism_cannot_carry(mechanism: str, user: str) -> None:
    with pytest.raises(ConfigurationError):
        sasl_client(mechanism, user, "secret", b"nonce")
