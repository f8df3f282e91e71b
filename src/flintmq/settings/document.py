"""A settings file as a list of names and texts: YAML or TOML, flat names and nested tables alike.

A name that is given twice is an error, whichever way it is written. This module must not know which names
there are, and reads no file: it is given the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flintmq.errors import ConfigurationError

Format = Literal["yaml", "toml"]


@dataclass(frozen=True, slots=True)
class SettingsFile:
    name: str
    """What to call it in messages: its path as the user gave it."""
    text: str
    format: Format

    @classmethod
    def of(cls, path: str, text: str) -> SettingsFile:
        """TOML by its ending, else YAML (of which JSON is a part)."""
        return cls(path, text, "toml" if path.lower().endswith(".toml") else "yaml")


def read_settings(file: SettingsFile) -> list[tuple[str, str]]:
    """Names and texts in the order of the file; an empty value (null) leaves its setting alone."""
    tree = _read_toml(file) if file.format == "toml" else _read_yaml(file)
    if tree is None:
        return []
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{file.name}: expected settings such as `num.partitions: 3`")
    seen: dict[str, str] = {}
    for name, value in _leaves("", tree):
        if name in seen:
            raise ConfigurationError(f"{file.name}: {name} is given twice")
        if value is not None:
            seen[name] = _text(value, f"{name} in {file.name}")
    return list(seen.items())


def _leaves(prefix: str, tree: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _leaves(name + ".", value)
        else:
            yield name, value


def _text(value: object, location: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, str)):
        return str(value)
    if isinstance(value, list):
        return ",".join(_text(item, location) for item in value)
    raise ConfigurationError(f"{location}: expected text, a number, true or false, or a list of these")


def _read_toml(file: SettingsFile) -> Any:
    import tomllib  # neither parser is loaded unless a file needs it: start-up stays short

    try:
        return tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file.name}: not valid TOML: {error}") from None


def _read_yaml(file: SettingsFile) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML's own rule that keys are unique, which the library does not enforce."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for key in keys:
                if keys.count(key) > 1:
                    raise ConfigurationError(f"{file.name}: {key} is given twice")
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(file.text, Loader)  # nosec B506
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file.name}: not valid YAML: {error}") from None
