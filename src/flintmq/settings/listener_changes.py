"""What may change about listeners while a broker runs, and what may not. Pure.

A listener is opened with its settings and keeps them, except for those that are dynamic by themselves. So another
security protocol, or another value of a setting that is read when a listener is opened, needs another listener.
"""

from __future__ import annotations

from flintmq.settings.broker import BrokerConfig
from flintmq.settings.declaration import UpdateMode
from flintmq.settings.listener_overrides import broker_setting, override_name
from flintmq.settings.listeners import protocols_of
from flintmq.settings.rest import REST_LISTENER

LISTENER_SETTINGS = ("listeners", "advertised.listeners", "listener.security.protocol.map")


def listener_change_fault(before: BrokerConfig, after: BrokerConfig) -> str | None:
    """What keeps a running broker from changing its settings from `before` to `after`, or None."""
    old, new = protocols_of(before), protocols_of(after)
    for name in old.keys() & new.keys():
        if old[name] is not new[name]:
            return (
                f"the security protocol of listener {name} cannot change from {old[name].value} to {new[name].value} "
                "while the broker runs; add a listener with another name, move the clients, and remove this one"
            )
    set_before, set_after = before.listener_overrides, after.listener_overrides
    for key in sorted(set_before.keys() | set_after.keys()):
        name = override_name(*key)
        declared = broker_setting(name)
        if declared is None or declared.dynamic is not UpdateMode.READ_ONLY:
            continue
        if (key in set_before, set_before.get(key)) == (key in set_after, set_after.get(key)):
            continue
        listener = key[0]
        if listener == REST_LISTENER or (listener in old and listener in new):
            return (
                f"Cannot update these configs dynamically: {name} is read when the listener is opened; add a "
                "listener with another name, or restart the broker"
            )
        if key in set_after and listener not in new:
            return f"{name}: there is no listener {listener}; add it to listeners in the same request"
    return None
