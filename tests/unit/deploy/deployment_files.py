"""Reading the files of `deploy/` the way their own programs do, and asking FlintMQ whether it takes what they say.

Only parsers: no container engine, cluster or service manager is needed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from flintmq.cli.main import main
from flintmq.settings import LoadedSettings, SettingsFile, load

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"

HTTP_ADDRESS = "FLINTMQ_REST_HOST"
HTTP_PORT = 30004
"""Where the listener for metrics and health binds; loopback, which no probe reaches, unless it is set."""


def read(path: str) -> str:
    return (DEPLOY / path).read_text(encoding="utf-8")


def read_yaml(path: str) -> Any:
    return yaml.safe_load(read(path))


def settings_from(environ: Mapping[str, str], settings_file: str | None = None) -> LoadedSettings:
    """What a broker with this environment and this file of `deploy/` would run with, or ConfigurationError."""
    file = SettingsFile.of(settings_file, read(settings_file)) if settings_file else None
    return load(command_line=[], environ=environ, file=file)


def advertised(loaded: LoadedSettings) -> dict[str, str]:
    """Listener names and the addresses clients are told."""
    return {item.name: f"{item.host}:{item.port}" for item in loaded.broker.advertised_listeners}


def listening(loaded: LoadedSettings) -> dict[str, int]:
    return {item.name: item.port for item in loaded.broker.listeners}


def parse_command(arguments: Sequence[str]) -> dict[str, Any]:
    """The options `flintmq` understands from a command line, without running it; a wrong one raises."""
    command: click.Command | None = main
    name, rest = "flintmq", list(arguments)
    while isinstance(command, click.Group):
        name, *rest = rest
        command = command.get_command(click.Context(command), name)
    assert command is not None, f"there is no command {name}"
    return command.make_context(name, rest).params


@dataclass(frozen=True, slots=True)
class Instruction:
    name: str
    value: str

    def flag(self, name: str) -> str | None:
        match = re.search(rf"(?:^|\s)--{name}=(\S+)", self.value)
        return match.group(1) if match else None

    def command(self) -> list[str]:
        """The exec form, `["a", "b"]`, wherever it stands in the instruction."""
        words: list[str] = json.loads(self.value[self.value.index("[") :])
        return words


def parse_dockerfile(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(None, 1)) for line in joined.splitlines()]


def parse_environment(instructions: Sequence[Instruction]) -> dict[str, str]:
    pairs = [word for item in instructions if item.name == "ENV" for word in shlex.split(item.value)]
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def parse_unit(text: str) -> dict[str, dict[str, list[str]]]:
    """A systemd unit: sections, and for each key all its values, since a key may be repeated."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in text.splitlines():
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        else:
            key, equals, value = line.partition("=")
            assert equals, f"{line!r} is neither a section nor a setting"
            section.setdefault(key, []).append(value)
    return sections
