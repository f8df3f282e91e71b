"""SASL: mechanisms, users, the time that an authentication holds, and what clients cost before they are known."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import UpdateMode, setting
from flintmq.settings.jaas import parse_jaas
from flintmq.settings.kinds import SettingKind, ValueCheck, between


def _read_jaas(text: str) -> str:
    parse_jaas(text)
    return text


def _read_file_url(text: str) -> str:
    if not text.startswith("file:/"):
        raise ValueError("expected file:///path; key sets over HTTP are not available in this version")
    return text.strip()


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class AuthenticationConfig:
    __slots__ = ()

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        SettingKind.LIST,
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        check=ValueCheck(
            "different mechanisms, at least one",
            lambda value: len(value) > 0 and all(value) and len(set(value)) == len(value),
        ),
        dynamic=UpdateMode.PER_BROKER,
        per_listener=True,
        doc="The SASL mechanisms of listeners with SASL_PLAINTEXT or SASL_SSL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER, and those of plug-ins. Kafka's default is GSSAPI, which is not available.",
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config",
        SettingKind.PASSWORD,
        None,
        read=_read_jaas,
        dynamic=UpdateMode.PER_BROKER,
        per_listener=True,
        doc='The users of PLAIN in Kafka\'s syntax: `…PlainLoginModule required user_alice="password";`. Kafka reads '
        "it only with listener and mechanism (`listener.name.NAME.plain.sasl.jaas.config`); without them it is the "
        "default of all listeners.",
    )
    flint_users_file: str | None = setting(
        "flint.users.file",
        SettingKind.STRING,
        None,
        doc="A file with users of PLAIN and their hashed passwords, which `flintmq user add --users-file` writes. It "
        "is read again when it changes.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        SettingKind.STRING,
        None,
        read=_read_file_url,
        per_listener=True,
        doc="The public keys of the issuer of tokens for OAUTHBEARER: a JSON Web Key Set as `file:///path`, which is "
        "read again when it changes.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        SettingKind.LIST,
        (),
        per_listener=True,
        doc="Audiences (`aud`), one of which a token must name. Without it tokens for other services are accepted.",
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        "sasl.oauthbearer.expected.issuer",
        SettingKind.STRING,
        None,
        per_listener=True,
        doc="The issuer (`iss`) that a token must name.",
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name",
        SettingKind.STRING,
        "sub",
        per_listener=True,
        doc="The claim of a token that is the name of the principal.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        SettingKind.INT,
        30,
        check=between(0, 600),
        per_listener=True,
        doc="How far the clock of the issuer may differ.",
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        SettingKind.LONG,
        0,
        per_listener=True,
        doc="How long an authentication holds. Clients are given this time and authenticate again before it ends "
        "(KIP-368); a connection that does not is closed at its next request. 0 or less sets no limit.",
    )
    sasl_kerberos_min_time_before_relogin: int = setting(
        "sasl.kerberos.min.time.before.relogin",
        SettingKind.LONG,
        60_000,
        dynamic=UpdateMode.PER_BROKER,
        doc="Without effect, because there is no GSSAPI. It can be set as on Kafka, where admin clients and their "
        "tests do.",
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        SettingKind.INT,
        64 << 10,
        check=between(1024, 16 << 20),
        doc="The largest request of a client that is not authenticated yet. Kafka's default is 512 KiB.",
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        SettingKind.INT,
        100,
        check=between(0, 60_000),
        doc="How long the response to a failed authentication, and the end of its connection, are delayed.",
    )
