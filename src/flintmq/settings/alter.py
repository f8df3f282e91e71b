"""What AlterConfigs and IncrementalAlterConfigs (KIP-339) make of a resource's settings.

Each function takes the texts a resource has now and returns the texts it shall have, or raises RequestError
with the code Kafka gives; nothing is changed in place. This module must not know how the result is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from flintmq.errors import ConfigurationError, ErrorCode, RequestError
from flintmq.settings.broker import BROKER_SETTINGS, BrokerConfig
from flintmq.settings.declaration import Setting, UpdateMode, nearest
from flintmq.settings.kinds import SettingKind
from flintmq.settings.listener_changes import LISTENER_SETTINGS, listener_change_fault
from flintmq.settings.listener_overrides import broker_setting
from flintmq.settings.references import has_reference
from flintmq.settings.resolve import BrokerValues, parse_topic_config
from flintmq.settings.topic import TOPIC_SETTINGS

_VALUE_SIZE_MAX = (1 << 15) - 1


class AlterOperation(IntEnum):
    """Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    name: str
    operation: int
    """An `Operation`; any other number, as a client may send it, is refused."""
    value: str | None


def apply_alterations(
    current: Mapping[str, str],
    alterations: Sequence[Alteration],
    settings: Mapping[str, Setting],
    lists: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The texts after the operations, in their order. Values are not checked here.

    `lists` are what is appended to where `current` has nothing and the declared default is not meant.
    """
    _refuse_malformed(alterations)
    altered = dict(current)
    for alteration in alterations:
        name, value = alteration.name, alteration.value
        if value is None or alteration.operation == AlterOperation.DELETE:
            altered.pop(name, None)
        elif alteration.operation == AlterOperation.SET:
            altered[name] = value
        else:
            start = altered.get(name, lists.get(name) if lists else None)
            altered[name] = _changed_list(start, alteration.operation, value, name, settings)
        if len(altered.get(name, "")) > _VALUE_SIZE_MAX:
            raise RequestError(
                ErrorCode.INVALID_CONFIG, f"The value of {name} is longer than {_VALUE_SIZE_MAX} bytes"
            )
    return altered


def _refuse_malformed(alterations: Sequence[Alteration]) -> None:
    names = [alteration.name for alteration in alterations]
    if len(set(names)) != len(names):
        raise RequestError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [
        item.name for item in alterations if item.operation != AlterOperation.DELETE and item.value is None
    ]
    if empty:
        raise RequestError(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(empty))
    for alteration in alterations:
        if not AlterOperation.SET <= alteration.operation <= AlterOperation.SUBTRACT:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Unknown operation {alteration.operation}")


def _changed_list(
    current: str | None, operation: int, value: str, name: str, settings: Mapping[str, Setting]
) -> str:
    declared = settings.get(name)
    if declared is None or declared.kind is not SettingKind.LIST:
        verb = AlterOperation(operation).name.lower()
        raise RequestError(
            ErrorCode.INVALID_CONFIG, f"Cannot {verb} to {name}: it is not a known setting of type LIST"
        )
    # Kafka starts from the declared default here, not from the broker's synonym.
    start = current if current is not None else declared.format(declared.default) or ""
    items = [item for item in start.split(",") if item]
    operands = value.split(",")
    if operation == AlterOperation.APPEND:
        items += [item for item in dict.fromkeys(operands) if item not in items]
    else:
        items = [item for item in items if item not in operands]
    return ",".join(items)


def alter_topic(
    current: Mapping[str, str], alterations: Sequence[Alteration], broker: BrokerConfig
) -> dict[str, str]:
    """IncrementalAlterConfigs of a topic: the new overrides, checked over the broker's defaults."""
    altered = apply_alterations(current, alterations, TOPIC_SETTINGS)
    parse_topic_config(altered, broker)
    return altered


def alter_broker(
    values: BrokerValues, alterations: Sequence[Alteration], *, per_broker: bool
) -> dict[str, str]:
    """IncrementalAlterConfigs of a broker: the new dynamic texts of this broker, or of the whole cluster."""
    current = values.dynamic if per_broker else values.dynamic_default
    # To append to `listeners` is to add a listener to those that are open.
    lists = {name: text for name, text in values.merged().items() if name in LISTENER_SETTINGS}
    altered = apply_alterations(current, alterations, BROKER_SETTINGS, lists)
    _check_dynamic(altered, per_broker=per_broker)
    static = values.static
    changed = (
        BrokerValues(static, values.dynamic_default, altered)
        if per_broker
        else BrokerValues(static, altered, values.dynamic)
    )
    try:
        after = changed.config()
    except ConfigurationError as error:
        # Kafka's code for a broker value that fails its check (KAFKA-13609); a topic's is INVALID_CONFIG.
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if per_broker:
        _check_listeners(values, after)
    return altered


def _check_listeners(values: BrokerValues, after: BrokerConfig) -> None:
    try:
        before = values.config()
    except ConfigurationError:
        # What the settings refer to is gone: there is nothing to compare with.
        return
    fault = listener_change_fault(before, after)
    if fault is not None:
        raise RequestError(ErrorCode.INVALID_REQUEST, fault)


def replacement(current: Mapping[str, str], values: Sequence[tuple[str, str | None]]) -> list[Alteration]:
    """AlterConfigs as alterations: what it does not name is deleted."""
    kept = [Alteration(name, AlterOperation.SET, value) for name, value in values]
    names = [name for name, _ in values]
    return kept + [Alteration(name, AlterOperation.DELETE, None) for name in current if name not in names]


def _check_dynamic(altered: Mapping[str, str], *, per_broker: bool) -> None:
    for name, text in altered.items():
        declared = broker_setting(name)
        if declared is None:
            guess = nearest(name, BROKER_SETTINGS)
            hint = f" (did you mean {guess}?)" if guess else ""
            raise RequestError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {name}{hint}")
        is_override = name not in BROKER_SETTINGS
        # Settings of single listeners may come with the listener that they are for.
        if declared.dynamic is UpdateMode.READ_ONLY and not (is_override and per_broker):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {name}")
        if not declared.sensitive and has_reference(text):
            # Errors quote values and parts of them: a client could read the broker's files from these.
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"Only passwords, keys and sasl.jaas.config may be altered to a reference, not {name}; write the "
                "value itself, or put the reference into the settings that the broker is started with",
            )
        if declared.dynamic is UpdateMode.PER_BROKER and not per_broker:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update these configs at default cluster level, broker id must be specified: {name}",
            )
        if declared.dynamic is UpdateMode.PER_BROKER and not is_override and declared.per_listener:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                f"{name}",
            )
