"""Settings as they are typed: the options by which `serve` and `config` configure a broker, and those of topics.

This module reads the environment and the settings file; what they mean is up to `flintmq.settings`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flintmq.errors import ConfigurationError

if TYPE_CHECKING:
    from flintmq.settings import LoadedSettings

F = TypeVar("F", bound=Callable[..., Any])

CONFIG_VARIABLES = ("FLINTMQ_CONFIG", "FLINTMQ_SETTINGS")


def source_options(command: F) -> F:
    """The flags; their values reach the command as `port`, `host`, `data_dir`, `assignments`, `config_file`."""
    options = (
        click.option(
            "--port", type=click.IntRange(0, 65535), help="Port for clients; 0 takes a free one. [9092]"
        ),
        click.option("--host", help="Address to listen on; 0.0.0.0 for all. [this machine only]"),
        click.option(
            "--data-dir", metavar="FOLDER", help="Where topics and metadata are kept. [./flintmq-data]"
        ),
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any setting by its name, as often as needed; `flintmq config` lists them. Units are "
            "understood: 1h, 512MB, 80%.",
        ),
        click.option(
            "--config",
            "--settings",
            "config_file",
            metavar="FILE",
            help="Settings in YAML or TOML. [FLINTMQ_CONFIG]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def load_settings(
    *,
    port: int | None,
    host: str | None,
    data_dir: str | None,
    assignments: Sequence[str],
    config_file: str | None,
    environ: Mapping[str, str] = os.environ,
) -> LoadedSettings:
    """What a broker started with these flags would be told; ConfigurationError says what is wrong."""
    from flintmq.settings import load

    given = [parse_assignment(text, "--set") for text in assignments]
    if port is not None:
        given.append(("broker_ports", str(port)))
    if host is not None:
        given.append(("kafka_hostname", host))
    if data_dir is not None:
        given.append(("log.dirs", data_dir))
    path = config_file or next((environ[name] for name in CONFIG_VARIABLES if environ.get(name)), None)
    return load(command_line=given, environ=environ, file=_read(path) if path else None)


def parse_assignment(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigurationError(f"{option} {text}: expected NAME=VALUE")
    return name.strip(), value.strip()


def _read(path: str) -> Any:
    from flintmq.settings import SettingsFile

    try:
        with open(path, encoding="utf-8") as file:
            return SettingsFile.of(path, file.read())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigurationError(f"{path} cannot be read: {reason}") from None


def parse_topic_settings(assignments: Iterable[str]) -> dict[str, str]:
    """Return names and plain values of `retention.ms=7d`, checked before anything is sent.

    An unknown name is passed on, since the broker may be a newer one, unless it is nearly a known one.
    """
    from flintmq.settings import TOPIC_SETTINGS

    settings: dict[str, str] = {}
    for text in assignments:
        name, value = parse_assignment(text, "--config")
        declared = TOPIC_SETTINGS.get(name)
        settings[name] = declared.plain(value) if declared else value
        if declared is None:
            refuse_near_miss(name)
    return settings


def refuse_near_miss(name: str) -> None:
    from flintmq.settings import TOPIC_SETTINGS
    from flintmq.settings.declaration import nearest

    guess = None if name in TOPIC_SETTINGS else nearest(name, TOPIC_SETTINGS)
    if guess:
        raise ConfigurationError(f"topics have no setting {name}; did you mean {guess}?")
