"""Client settings for security, from properties and the environment."""

from __future__ import annotations

import pytest

from flintmq.client.credentials.settings import ENVIRONMENT, SECRET_NAMES, SECURITY_SETTINGS
from flintmq.client.sasl import sasl_client
from flintmq.client.security import (
    BearerSettings,
    ClientSecurity,
    TlsTrust,
    environment_properties,
    parse_properties,
    parse_security,
)
from flintmq.errors import ConfigurationError
from flintmq.settings.broker import BROKER_SETTINGS
from flintmq.settings.names import name_of_variable

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
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "openssl pkcs12"),
        ({"security.protocol": "SSL", "ssl.key.location": "k"}, "needs ssl.certificate.location"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "k"}, "go together"),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"},
            "expected https or none",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            "needs sasl.oauthbearer.token",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://login",
            },
            "needs sasl.oauthbearer.client.id",
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


def test_tls_by_the_names_of_librdkafka_and_of_java() -> None:
    ours = {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca",
        "ssl.certificate.location": "c",
        "ssl.endpoint.identification.algorithm": "",
    }
    java = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca",
        "ssl.keystore.location": "c",
        "ssl.endpoint.identification.algorithm": "none",
    }
    expected = TlsTrust(ca_location="ca", certificate_location="c", checks_host=False)
    assert parse_security(ours).tls == parse_security(java).tls == expected
    assert parse_security({"security.protocol": "SSL"}).tls.checks_host


def test_delegation_tokens_and_oauth_logins_as_java_clients_have_them() -> None:
    token = JAAS.replace(";", ' tokenauth="true";')
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": token}
    assert parse_security(given).is_delegation_token
    with pytest.raises(ConfigurationError, match="tokenauth=true is for SCRAM"):
        parse_security({**given, "sasl.mechanism": "PLAIN"})
    client = sasl_client("SCRAM-SHA-256", "id", "hmac", b"nonce", is_delegation_token=True)
    assert client.first().endswith(b",tokenauth=true")
    oauth = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login",
        "sasl.jaas.config": 'x.OAuthBearerLoginModule required clientId="c" clientSecret="s" scope="z";',
    }
    expected = BearerSettings(endpoint_url="https://login", client_id="c", client_secret="s", scope="z")
    assert parse_security(oauth).bearer == expected


def test_no_secret_is_shown_and_references_stay() -> None:
    given = {one.name: f"secret-{one.name}" for one in SECURITY_SETTINGS if one.is_secret}
    given.update({"security.protocol": "SASL_SSL", "sasl.username": "${env:USER_OF_TEST}"})
    given["sasl.jaas.config"] = JAAS
    given["ssl.keystore.certificate.chain"] = "chain"
    for mechanism in ("PLAIN", "OAUTHBEARER"):
        found = parse_security({**given, "sasl.mechanism": mechanism})
        assert "secret" not in repr(found).replace("client_secret", "").lower()
    assert parse_security({**given, "sasl.mechanism": "PLAIN"}).username == "${env:USER_OF_TEST}"
    assert {"sasl.password", "sasl.jaas.config", "ssl.key.password"} < SECRET_NAMES


def test_variables_of_the_client_are_not_the_broker_s() -> None:
    assert not set(ENVIRONMENT.values()) & BROKER_SETTINGS.keys()
    assert {name_of_variable(variable) for variable in ENVIRONMENT} == {None}
