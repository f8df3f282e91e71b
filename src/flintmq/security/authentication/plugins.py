"""Mechanisms from entry points: the group `flintmq.authenticators`, the entry's name being the mechanism's.

    [project.entry-points."flintmq.authenticators"]
    X-TOKEN = "my_package:TokenMechanism"

The object is called with a `ListenerContext` for each listener that enables the mechanism, and returns a `Mechanism`.
`examples/security/static_token.py` is a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from flintmq.errors import ConfigurationError
from flintmq.security.authentication.mechanism import Mechanism

GROUP: Final = "flintmq.authenticators"


class ListenerContext(NamedTuple):
    """What a plug-in may know of the listener."""

    listener: str
    mechanism: str
    security_protocol: str
    options: Mapping[str, str]
    """The options in `listener.name.LISTENER.MECHANISM.sasl.jaas.config`; empty if it is not set."""


MechanismFactory = Callable[[ListenerContext], Mechanism]


def find_plugin(mechanism: str) -> MechanismFactory | None:
    """Load the plug-in of a mechanism; None if none is installed, ConfigurationError if it cannot be loaded."""
    from importlib.metadata import entry_points  # takes long: only brokers with such a mechanism pay for it

    for entry in entry_points(group=GROUP):
        if entry.name == mechanism:
            try:
                factory = entry.load()
            except Exception as error:
                raise ConfigurationError(
                    f"the authenticator {mechanism} ({entry.value}) cannot be loaded: {error}"
                ) from error
            if not callable(factory):
                raise ConfigurationError(f"the authenticator {mechanism} ({entry.value}) cannot be called")
            return factory  # type: ignore[no-any-return]
    return None
