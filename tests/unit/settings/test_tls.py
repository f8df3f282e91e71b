"""Listeners with security protocols, settings of single listeners, and the settings of TLS."""

from __future__ import annotations

import ssl

import pytest

from flintmq.errors import ConfigurationError, RequestError
from flintmq.settings import (
    Alteration,
    AlterOperation,
    BrokerValues,
    SettingsFile,
    alter_broker,
    describe_broker,
    load,
    parse_broker_config,
)
from flintmq.settings.listener_overrides import override_of_variable
from flintmq.settings.listeners import SecurityProtocol, listener_setting, protocols_of
from flintmq.settings.tls import openssl_cipher, tls_settings

TLS = {"listeners": "SSL://:9093", "ssl.keystore.location": "/k.pem"}


def test_listeners_named_like_a_protocol_need_no_map() -> None:
    config = parse_broker_config(
        {**TLS, "listeners": "PLAINTEXT://:1,SSL://:2,SASL_SSL://:3,SASL_PLAINTEXT://:4"}
    )
    assert list(protocols_of(config).values()) == [
        SecurityProtocol.PLAINTEXT,
        SecurityProtocol.SSL,
        SecurityProtocol.SASL_SSL,
        SecurityProtocol.SASL_PLAINTEXT,
    ]


def test_an_override_counts_for_its_listener_alone() -> None:
    config = parse_broker_config(
        {
            "listeners": "IN://:1,OUT://:2",
            "listener.security.protocol.map": "IN:SSL,OUT:SSL",
            "ssl.keystore.location": "/k.pem",
            "listener.name.out.ssl.keystore.location": "/out.pem",
        }
    )
    assert listener_setting(config, "OUT", "ssl.keystore.location") == "/out.pem"
    assert listener_setting(config, "IN", "ssl.keystore.location") == "/k.pem"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"listeners": "SSL://:1"}, "needs a certificate"),
        ({**TLS, "ssl.keystore.type": "JKS"}, "keytool -importkeystore"),
        ({**TLS, "ssl.keystore.type": "BCFKS"}, "PEM, PKCS12"),
        ({**TLS, "ssl.keystore.key": "x"}, "both set"),
        ({"listeners": "SSL://:1", "ssl.keystore.key": "x"}, "set together"),
        ({**TLS, "ssl.client.auth": "required"}, "ssl.truststore.location"),
        ({**TLS, "ssl.client.auth": "maybe"}, "requested"),
        ({**TLS, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "RFC 8996"),
        ({**TLS, "ssl.enabled.protocols": "TLSv1.4"}, "not one of"),
        ({**TLS, "ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "add TLSv1.2"),
        ({**TLS, "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "Python cannot choose"),
        ({**TLS, "ssl.cipher.suites": "TLS_NOTHING"}, "not the name of a cipher suite"),
        ({"listener.security.protocol.map": "A:TLS"}, "SASL_SSL"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(values: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_broker_config(values)


def test_a_sasl_ssl_listener_asks_for_certificates_only_by_its_own_setting() -> None:
    base = {
        "listeners": "SASL_SSL://:1",
        "ssl.keystore.location": "/k.pem",
        "ssl.truststore.location": "/ca.pem",
        "ssl.client.auth": "required",
    }
    own = {"listener.name.sasl_ssl.ssl.client.auth": "required"}
    assert tls_settings(parse_broker_config(base), "SASL_SSL").client_auth == "none"
    assert tls_settings(parse_broker_config(base | own), "SASL_SSL").client_auth == "required"


IANA = {
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "ECDHE-RSA-AES128-GCM-SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
}


@pytest.mark.parametrize("name", IANA)
def test_cipher_suites_have_either_name(name: str) -> None:
    assert openssl_cipher(name) == IANA[name]
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(IANA[name])


# ---- where settings come from


def test_overrides_come_from_command_line_environment_and_file() -> None:
    listeners = ("listeners", "EXTERNAL://:1")
    protocols = ("listener.security.protocol.map", "EXTERNAL:SSL")
    loaded = load(
        command_line=[listeners, protocols, ("listener.name.external.ssl.keystore.location", "/k.pem")],
        environ={"FLINTMQ_LISTENER_NAME_EXTERNAL_SSL_KEY_PASSWORD": "secret"},
        file=SettingsFile.of("a.yaml", "listener.name.external.ssl.protocol: TLSv1.2"),
    )
    values = {
        one.setting.name: one.value for one in loaded.values if one.setting.name.startswith("listener.name")
    }
    assert values == {
        "listener.name.external.ssl.keystore.location": "/k.pem",
        "listener.name.external.ssl.key.password": "secret",
        "listener.name.external.ssl.protocol": "TLSv1.2",
    }
    assert "secret" not in repr(loaded.broker)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("SASL_SSL_PLAIN_SASL_JAAS_CONFIG", "sasl_ssl.plain.sasl.jaas.config"),
        ("SASL_SSL_SCRAM_SHA_512_SASL_JAAS_CONFIG", "sasl_ssl.scram-sha-512.sasl.jaas.config"),
        ("SASL_PLAINTEXT_SASL_ENABLED_MECHANISMS", "sasl_plaintext.sasl.enabled.mechanisms"),
        ("X_OAUTHBEARER_CONNECTIONS_MAX_REAUTH_MS", "x.oauthbearer.connections.max.reauth.ms"),
        ("PLAIN_SSL_CLIENT_AUTH", "plain.ssl.client.auth"),
        ("PLAIN_SASL_ENABLED_MECHANISMS", "plain.sasl.enabled.mechanisms"),
    ],
)
def test_a_variable_may_name_a_mechanism_of_a_listener(variable: str, name: str) -> None:
    assert override_of_variable(f"FLINTMQ_LISTENER_NAME_{variable}") == f"listener.name.{name}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("listener.name.other.ssl.keystore.location", "there is no listener OTHER"),
        ("listener.name.plaintext.num.partitions", "only settings of TLS and SASL"),
        ("inter.broker.listener.name", "one broker"),
        ("security.inter.broker.protocol", "one broker"),
    ],
)
def test_settings_without_an_effect_are_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(command_line=[(name, "PLAINTEXT")])


def test_the_value_of_a_secret_is_not_in_an_error() -> None:
    with pytest.raises(RequestError) as caught:
        alter_broker(
            BrokerValues(static=TLS),
            [Alteration("listener.name.ssl.ssl.keystore.key", AlterOperation.SET, "hush")],
            per_broker=True,
        )
    assert "hush" not in str(caught.value)


# ---- changes while running (KIP-226)


def test_stores_are_changed_for_one_listener_of_one_broker() -> None:
    values = BrokerValues(static=TLS)
    name = "listener.name.ssl.ssl.keystore.location"
    change = [Alteration(name, AlterOperation.SET, "/new.pem")]
    altered = alter_broker(values, change, per_broker=True)
    assert altered == {name: "/new.pem"}
    with pytest.raises(RequestError, match="broker id must be specified"):
        alter_broker(values, change, per_broker=False)
    with pytest.raises(RequestError, match="only per-listener"):
        alter_broker(
            values, [Alteration("ssl.keystore.location", AlterOperation.SET, "/new.pem")], per_broker=True
        )
    with pytest.raises(RequestError, match="Cannot update these configs dynamically"):
        alter_broker(
            values,
            [Alteration("listener.name.ssl.ssl.protocol", AlterOperation.SET, "TLSv1.2")],
            per_broker=True,
        )


def test_overrides_are_described_and_secrets_are_not() -> None:
    static = {**TLS, "listener.name.ssl.ssl.key.password": "hush"}
    values = BrokerValues(static=static, dynamic={"listener.name.ssl.ssl.keystore.location": "/new.pem"})
    entries = {entry.name: entry for entry in describe_broker(values)}
    assert entries["listener.name.ssl.ssl.keystore.location"].value == "/new.pem"
    assert [one.value for one in entries["listener.name.ssl.ssl.keystore.location"].synonyms] == [
        "/new.pem",
        "/k.pem",
    ]
    hidden = entries["listener.name.ssl.ssl.key.password"]
    assert (hidden.value, hidden.sensitive) == (None, True)
    assert "hush" not in repr(entries)
