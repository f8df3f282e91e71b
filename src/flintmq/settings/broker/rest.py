"""Security of the HTTP port. Its TLS and SASL settings are those of a listener: `listener.name.rest.…`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flintmq.settings.declaration import setting
from flintmq.settings.kinds import SettingKind, distinct_from, one_of

BASIC: Final = "basic"
BEARER: Final = "bearer"
CERTIFICATE: Final = "certificate"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class RestConfig:
    __slots__ = ()

    flint_rest_authentication: tuple[str, ...] = setting(
        "flint.rest.authentication",
        SettingKind.LIST,
        (),
        check=distinct_from(BASIC, BEARER, CERTIFICATE),
        doc="How clients of the HTTP port authenticate: `basic` by the users of PLAIN and SCRAM, `bearer` by the "
        "tokens of OAUTHBEARER, `certificate` by a client certificate; any of those listed will do. Empty asks for "
        "nothing. Mechanisms and users are those of `listener.name.rest.sasl.…`, or else of all listeners.",
    )
    flint_rest_security_protocol: str = setting(
        "flint.rest.security.protocol",
        SettingKind.STRING,
        "PLAINTEXT",
        check=one_of("PLAINTEXT", "SSL"),
        doc="SSL serves HTTPS, with the settings `listener.name.rest.ssl.…`, or else those of all listeners.",
    )
    flint_rest_allow_unauthenticated: bool = setting(
        "flint.rest.allow.unauthenticated",
        SettingKind.BOOLEAN,
        False,
        doc="Allow everyone who reaches the HTTP port to read all of its pages, whatever its address and the "
        "authorizer are. Without it, an address other than loopback needs flint.rest.authentication.",
    )
