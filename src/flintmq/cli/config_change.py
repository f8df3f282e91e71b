"""What `flintmq config --alter` and `--reset` do: change the dynamic settings of a broker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flintmq.cli.common.connection import open_client
from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.common.output import note
from flintmq.cli.common.settings_options import parse_assignment
from flintmq.settings import BROKER_SETTINGS
from flintmq.settings.declaration import nearest
from flintmq.settings.listener_overrides import broker_setting

if TYPE_CHECKING:
    from flintmq.settings import LoadedSettings


def change_running_broker(
    bootstrap: str,
    broker_id: int | None,
    assignments: Sequence[str],
    resets: Sequence[str],
    *,
    validate_only: bool,
) -> None:
    from flintmq.client.admin.brokers import alter_broker, broker_ids

    settings = _parse(assignments)
    for name in resets:
        _refuse_near_miss(name)
    with open_client(bootstrap) as client:
        known = broker_ids(client)
        if broker_id is None and len(known) != 1:
            raise UsageFailure(f"Say which broker: --broker {' or '.join(str(one) for one in known)}.")
        node_id = known[0] if broker_id is None else broker_id
        if node_id not in known:
            raise UsageFailure(f"There is no broker {node_id}; there is {', '.join(map(str, known))}.")
        alter_broker(client, node_id, settings=settings, resets=resets, validate_only=validate_only)
    _report(f"broker {node_id}", settings, resets, validate_only=validate_only)


def reset_offline(loaded: LoadedSettings, resets: Sequence[str]) -> None:
    from flintmq.app.offline_metadata import reset_broker_configs

    data_dir = loaded.broker.log_dirs[0]
    if not os.path.isdir(data_dir):
        raise UsageFailure(f"There is no directory {data_dir}; give the broker's own with --data-dir.")
    removed = reset_broker_configs(data_dir, loaded.broker.node_id, resets)
    for name in resets:
        note(f"{name}: removed." if name in removed else f"{name}: was not set while the broker ran.")


def _parse(assignments: Sequence[str]) -> dict[str, str]:
    """Return names and plain values, checked before anything is sent; references are for the broker to resolve."""
    settings: dict[str, str] = {}
    for text in assignments:
        name, value = parse_assignment(text, "--alter")
        declared = broker_setting(name)
        if declared is None:
            _refuse_near_miss(name)
        settings[name] = value if declared is None or "${" in value else declared.plain(value)
    return settings


def _refuse_near_miss(name: str) -> None:
    guess = None if broker_setting(name) is not None else nearest(name, BROKER_SETTINGS)
    if guess:
        raise UsageFailure(f"Brokers have no setting {name}; did you mean {guess}?")


def _report(broker: str, settings: Mapping[str, str], resets: Sequence[str], *, validate_only: bool) -> None:
    if validate_only:
        note(f"{broker}: this can be changed; nothing has been.")
        return
    for name, value in settings.items():
        declared = broker_setting(name)
        shown = "changed" if declared is not None and declared.sensitive else f"now {value}"
        note(f"{broker}: {name} is {shown}.")
    for name in resets:
        note(f"{broker}: {name} is as at the start again.")
