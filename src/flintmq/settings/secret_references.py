"""`${env:NAME}` and `${file:PATH}` in values of settings: where a value is, in place of the value. Pure.

    resolve("${env:DB_PASSWORD}", what="sasl.password", environment=os.environ, read_file=read)

The environment and the files are given. A reference may stand anywhere in a value, and what it refers to is taken as
it is: references in it are not followed. Invariant: errors name the setting, the variable or the path, never a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from flintmq.errors import ConfigurationError

BYTES_MAX: Final = 64 * 1024
"""Of a file that a reference names."""

_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]*)\}")


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def is_reference(text: str) -> bool:
    """Return whether a value is a reference and nothing else, so that it can be shown."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def resolve(
    text: str,
    *,
    what: str,
    environment: Mapping[str, str],
    read_file: Callable[[str], bytes],
) -> str:
    """Return the value with its references replaced; `what` is the setting. Raise ConfigurationError.

    `read_file` returns at most BYTES_MAX + 1 bytes of a file and raises OSError. The line end at the end of a file is
    left out.
    """

    def value_of(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "env":
            return _variable(name, what, environment)
        return _content(name, what, read_file)

    return _REFERENCE.sub(value_of, text)


def _variable(name: str, what: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise ConfigurationError(
            f"{what} refers to the environment variable {name}, which is not set; set it in the process that connects"
        )
    return environment[name]


def _content(path: str, what: str, read_file: Callable[[str], bytes]) -> str:
    try:
        data = read_file(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"{what} refers to the file {path}, which cannot be read: {reason}"
        ) from None
    if len(data) > BYTES_MAX:
        raise ConfigurationError(f"{what} refers to the file {path}, which has more than {BYTES_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{what} refers to the file {path}, which is not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r")
