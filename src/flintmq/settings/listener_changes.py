"""What may change about listeners while a broker runs, and what may not. Pure.

A listener is opened with its settings and keeps them, except for those that are dynamic by themselves. So another
security protocol, or another value of a setting that is read when a listener is opened, needs another listener.
"""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.settings.broker import BrokerConfig
from flintmq.settings.declaration import UpdateMode
from flintmq.settings.listener_overrides import broker_setting, split_override
from flintmq.settings.listeners import protocols_of

LISTENER_SETTINGS = ("listeners", "advertised.listeners", "listener.security.protocol.map")


def listener_change_fault(
    before: BrokerConfig,
    after: BrokerConfig,
    *,
    texts_before: Mapping[str, str],
    texts_after: Mapping[str, str],
) -> str | None:
    """What keeps a running broker from having other dynamic settings, or None."""
    old, new = protocols_of(before), protocols_of(after)
    for name in old.keys() & new.keys():
        if old[name] is not new[name]:
            return (
                f"the security protocol of listener {name} cannot change from {old[name].value} to {new[name].value} "
                "while the broker runs; add a listener with another name, move the clients, and remove this one"
            )
    for setting_name in sorted(texts_before.keys() | texts_after.keys()):
        split = split_override(setting_name)
        if split is None or texts_before.get(setting_name) == texts_after.get(setting_name):
            continue
        declared = broker_setting(setting_name)
        if declared is None or declared.dynamic is not UpdateMode.READ_ONLY:
            continue
        listener = split[0]
        if listener in old and listener in new:
            return (
                f"Cannot update these configs dynamically: {setting_name} is read when the listener is opened; add a "
                "listener with another name, or restart the broker"
            )
        if listener not in new and setting_name in texts_after:
            return f"{setting_name}: there is no listener {listener}; add it to listeners in the same request"
    return None
