"""References in the values of settings, which keep secrets out of files, commands and the metadata store:

    ${env:NAME}         the environment variable NAME
    ${file:PATH}        the whole file, without the newline at its end
    ${file:PATH:KEY}    one property of a properties file, as Kafka's FileConfigProvider reads it

A reference may be the whole value or a part of it. Values are stored and shown as they were written, and resolved
when they are used. Invariant: no error of this module holds a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from flintmq.effects.secrets import environment_variable, read_secret_file
from flintmq.errors import ConfigurationError
from flintmq.settings.properties import parse_properties

_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]*)\}")
_JAAS: Final = "sasl.jaas.config"
_JAAS_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)


def has_reference(text: str) -> bool:
    return "${" in text and _REFERENCE.search(text) is not None


def is_reference(text: str) -> bool:
    """Return whether a value is a reference and nothing else, so that it holds no part of a secret."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def has_file_reference(text: str) -> bool:
    return any(match[1] == "file" for match in _REFERENCE.finditer(text))


def resolve_references(text: str, name: str) -> str:
    """Return the value of the setting `name` with its references replaced; text without any is returned as it is.

    Raise ConfigurationError that names what is missing. What is put into a part of a JAAS text is escaped, so that a
    password may hold quotes.
    """
    if not has_reference(text):
        return text
    is_whole = is_reference(text)
    escapes = None if is_whole or not name.endswith(_JAAS) else _JAAS_ESCAPES

    def replaced(match: re.Match[str]) -> str:
        value = _read(match[1], match[2], name)
        return value if escapes is None else value.translate(escapes)

    return _REFERENCE.sub(replaced, text.strip() if is_whole else text)


def resolve_all(values: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with the references of all values replaced."""
    return {name: resolve_references(text, name) for name, text in values.items()}


def redact(message: str, values: Mapping[str, str]) -> str:
    """Return a message about these settings with what references stand for replaced by the references."""
    for name, text in values.items():
        # ORDER: the whole value before its parts.
        for part in dict.fromkeys((text, *(match[0] for match in _REFERENCE.finditer(text)))):
            if not has_reference(part):
                continue
            try:
                resolved = resolve_references(part, name).strip()
            except ConfigurationError:
                continue
            for form in (resolved, repr(resolved)[1:-1]):
                message = message.replace(form, part) if form else message
    return message


def _read(provider: str, rest: str, name: str) -> str:
    if provider == "env":
        value = environment_variable(rest)
        if value is None:
            raise ConfigurationError(
                f"{name} refers to ${{env:{rest}}}, but the environment variable {rest} is not set"
            )
        return value
    path, colon, key = rest.partition(":")
    text = _file(path, f"{name} refers to ${{file:{rest}}}")
    if not colon:
        return text.removesuffix("\n").removesuffix("\r")
    found = parse_properties(text).get(key)
    if found is None:
        raise ConfigurationError(f"{name} refers to ${{file:{rest}}}, but {path} has no property {key}")
    return found


def _file(path: str, words: str) -> str:
    try:
        return read_secret_file(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except ValueError as error:
        reason = str(error)
    raise ConfigurationError(f"{words}, but the file {path} cannot be used: {reason}")
