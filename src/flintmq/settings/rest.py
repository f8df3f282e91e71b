"""The settings of the HTTP port taken together: who may read its pages, and what is wrong with them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.settings.tls import store_fault, tls_settings

if TYPE_CHECKING:
    from flintmq.settings.broker import BrokerConfig

REST_LISTENER: Final = "REST"
"""The name by which settings of listeners are set for the HTTP port."""
_OFF: Final = -1


def rest_has_tls(config: BrokerConfig) -> bool:
    return config.flint_rest_port != _OFF and config.flint_rest_security_protocol == "SSL"


def rest_is_restricted(config: BrokerConfig) -> bool:
    """Return whether clients of the HTTP port are asked who they are, or what they may do."""
    if config.flint_rest_authentication:
        return True
    return bool(config.authorizer_class_name) and not config.flint_rest_allow_unauthenticated


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def rest_fault(config: BrokerConfig) -> str | None:
    """What keeps the HTTP port from being opened, or None."""
    if config.flint_rest_port == _OFF:
        return None
    methods, host = config.flint_rest_authentication, config.flint_rest_host
    if not methods and not config.flint_rest_allow_unauthenticated and not is_loopback(host):
        return (
            f"flint.rest.host={host} would open the HTTP port to the network without authentication; set "
            "flint.rest.authentication (basic, bearer or certificate), or flint.rest.allow.unauthenticated=true if "
            "everyone who reaches it may read its pages"
        )
    if methods and config.flint_rest_allow_unauthenticated:
        return "flint.rest.authentication and flint.rest.allow.unauthenticated=true contradict each other; remove one"
    if (methods or rest_has_tls(config)) and any(one.name == REST_LISTENER for one in config.listeners):
        return "a listener is called REST, which is the name of the HTTP port; give the listener another name"
    if not rest_has_tls(config):
        if "certificate" in methods:
            return "flint.rest.authentication=certificate needs flint.rest.security.protocol=SSL"
        return None
    tls = tls_settings(config, REST_LISTENER)
    if "certificate" in methods and tls.client_auth == "none":
        return (
            "flint.rest.authentication=certificate needs listener.name.rest.ssl.client.auth=requested, or required "
            "if health checks have certificates too"
        )
    fault = store_fault(tls)
    return f"listener {REST_LISTENER} (the HTTP port): {fault}" if fault is not None else None
