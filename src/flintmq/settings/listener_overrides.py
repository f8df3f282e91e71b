"""Settings of one listener: `listener.name.NAME.SETTING`, for the settings that are declared `per_listener`.

SASL settings may also carry a mechanism: `listener.name.NAME.MECHANISM.sasl.SETTING`. The name of the listener is
written in small letters, as Kafka wants it, and read in any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flintmq.settings.broker import BROKER_SETTINGS
from flintmq.settings.declaration import Setting

PREFIX: Final = "listener.name."
MECHANISM_NAMES: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_VARIABLE_PREFIX: Final = "FLINTMQ_LISTENER_NAME_"
_WITH_MECHANISM: Final = ("sasl.", "connections.max.reauth")


def split_override(name: str) -> tuple[str, str] | None:
    """Return the listener and the rest of the name; None if it is not the name of an override."""
    if not name.lower().startswith(PREFIX):
        return None
    rest = name[len(PREFIX) :]
    # A listener's name may hold dots itself, so the setting is what is searched for.
    position = rest.find(".")
    while position > 0:
        if _declared(rest[position + 1 :]) is not None:
            return rest[:position].upper(), rest[position + 1 :].lower()
        position = rest.find(".", position + 1)
    return None


def _declared(name: str) -> Setting | None:
    found = BROKER_SETTINGS.get(name.lower())
    if found is None:
        _, _, tail = name.lower().partition(".")
        found = BROKER_SETTINGS.get(tail) if tail.startswith(_WITH_MECHANISM) else None
    return found if found is not None and found.per_listener else None


def override_name(listener: str, setting_name: str) -> str:
    return f"{PREFIX}{listener.lower()}.{setting_name}"


def broker_setting(name: str) -> Setting | None:
    """Return the declaration of a broker setting or of an override, whose name it then has."""
    found = BROKER_SETTINGS.get(name)
    if found is not None:
        return found
    split = split_override(name)
    if split is None:
        return None
    declared = _declared(split[1])
    assert declared is not None
    return replace(declared, name=override_name(*split))


def override_of_variable(variable: str) -> str | None:
    """Return the override that an environment variable sets: FLINTMQ_LISTENER_NAME_EXTERNAL_SSL_KEY_PASSWORD."""
    if not variable.startswith(_VARIABLE_PREFIX):
        return None
    rest = variable[len(_VARIABLE_PREFIX) :]
    names = [one.name for one in BROKER_SETTINGS.values() if one.per_listener]
    for name in sorted(names, key=len, reverse=True):
        ending = "_" + name.replace(".", "_").upper()
        if rest.endswith(ending) and len(rest) > len(ending):
            return _override_of(rest[: -len(ending)], name)
    return None


def _override_of(listener: str, name: str) -> str:
    """Return the name of an override; a mechanism at the end of the listener's name belongs to the setting."""
    if name.startswith(_WITH_MECHANISM):
        for mechanism in MECHANISM_NAMES:
            ending = "_" + mechanism.replace("-", "_").upper()
            if listener.endswith(ending) and len(listener) > len(ending):
                return override_name(listener[: -len(ending)], f"{mechanism.lower()}.{name}")
    return override_name(listener, name)
