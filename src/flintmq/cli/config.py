"""`flintmq config`: every setting, as a broker started with the same options would have it, and dynamic changes."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option
from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.common.output import note, print_json, print_table
from flintmq.cli.common.settings_options import load_settings, source_options

if TYPE_CHECKING:
    from flintmq.settings import LoadedSettings

_SECRET = "(secret)"


@click.command(
    "config",
    cls=Command,
    examples=(
        "flintmq config",
        "flintmq config 'log.retention.*'",
        "flintmq config --changed --config flintmq.yaml",
        "flintmq config --topic retention.ms --json",
        "flintmq config --alter listeners=PLAINTEXT://:9092,SASL_SSL://:9093",
        "flintmq config --reset listeners",
    ),
)
@click.argument("pattern", required=False)
@click.option("--topic", is_flag=True, help="The settings of topics, and the defaults that they would have.")
@click.option("--changed", is_flag=True, help="Only those that are not at their default.")
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@click.option(
    "--alter",
    "alterations",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a setting of a running broker; several are changed together or not at all.",
)
@click.option(
    "--reset",
    "resets",
    multiple=True,
    metavar="NAME",
    help="Remove a setting that was changed with --alter: the value of the start holds again.",
)
@click.option("--validate-only", is_flag=True, help="With --alter or --reset: check it, and change nothing.")
@click.option("--broker", "broker_id", type=int, metavar="ID", help="Which broker. [the only one]")
@click.option(
    "--offline", is_flag=True, help="With --reset: in the data directory of a broker that does not run."
)
@bootstrap_option
def command(
    pattern: str | None,
    topic: bool,
    changed: bool,
    as_json: bool,
    alterations: tuple[str, ...],
    resets: tuple[str, ...],
    validate_only: bool,
    broker_id: int | None,
    offline: bool,
    bootstrap: str,
    **sources: Any,
) -> None:
    """List all settings: meaning, value, source; and change those of a running broker.

    PATTERN selects by name, with * and ? as in a shell; a part of the name will do. No broker is asked: shown
    is what `flintmq serve` with the same options, environment and file would start with.

    With --alter and --reset the dynamic settings of a running broker are changed. They are in force at once and
    after a restart, over those that the broker is started with.
    """
    if alterations or resets:
        _change(pattern, alterations, resets, validate_only, broker_id, offline, bootstrap, sources)
        return
    if validate_only or offline or broker_id is not None:
        raise UsageFailure("Give --alter NAME=VALUE or --reset NAME as well.")
    loaded = load_settings(**sources)
    rows = _of_topics(loaded) if topic else _of_brokers(loaded)
    rows = [
        row for row in rows if _matches(row["name"], pattern) and not (changed and row["source"] == "default")
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            ("setting", "value", "source", "meaning"),
            [(row["name"], row["value"] or "", row["source"], row["meaning"]) for row in rows],
        )
    else:
        note(f"No setting has a name like {pattern}." if pattern else "Everything is at its default.")


def _change(
    pattern: str | None,
    alterations: tuple[str, ...],
    resets: tuple[str, ...],
    validate_only: bool,
    broker_id: int | None,
    offline: bool,
    bootstrap: str,
    sources: dict[str, Any],
) -> None:
    from flintmq.cli.config_change import change_running_broker, reset_offline

    if pattern is not None:
        raise UsageFailure(f"Leave out {pattern}: --alter and --reset name what is changed.")
    if not offline:
        change_running_broker(bootstrap, broker_id, alterations, resets, validate_only=validate_only)
    elif alterations or validate_only or broker_id is not None:
        raise UsageFailure("--offline goes with --reset alone: a change is checked by a broker that runs.")
    else:
        reset_offline(load_settings(**sources), resets)


def _matches(name: str, pattern: str | None) -> bool:
    return pattern is None or pattern in name or fnmatch.fnmatchcase(name, pattern)


def _of_brokers(loaded: LoadedSettings) -> list[dict[str, Any]]:
    return [
        {
            "name": one.setting.name,
            "value": _SECRET
            if one.setting.sensitive and one.value
            else one.reference or one.setting.format(one.value),
            "source": one.location,
            "default": one.setting.format(one.setting.default),
            "dynamic": one.setting.dynamic.value,
            "meaning": one.setting.doc,
        }
        for one in loaded.values
    ]


def _of_topics(loaded: LoadedSettings) -> list[dict[str, Any]]:
    from flintmq.settings import TOPIC_SETTINGS, ConfigSource, describe_topic

    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": "default" if entry.source is ConfigSource.DEFAULT_CONFIG else "broker",
            "default": TOPIC_SETTINGS[entry.name].format(TOPIC_SETTINGS[entry.name].default),
            "meaning": entry.doc,
        }
        for entry in describe_topic({}, loaded.layers)
    ]
