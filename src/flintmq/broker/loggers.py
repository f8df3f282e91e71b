"""The broker's loggers as the resource BROKER_LOGGER (KIP-412): their levels by Kafka's names.

They live in the process and are forgotten when it ends. `root` is the logger above all others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from flintmq.errors import ErrorCode, RequestError
from flintmq.settings import Alteration, AlterOperation

ROOT = "root"
_PREFIX = "flintmq"
# Python has no level below DEBUG: whoever asks for TRACE gets all there is.
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {level: name for name, level in _LEVELS.items()}


def levels() -> dict[str, str]:
    """Every logger of the broker with the level in force for it."""
    names = sorted(name for name in logging.root.manager.loggerDict if _is_ours(name))
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in [ROOT, *names]}


def check(alterations: Sequence[Alteration]) -> None:
    """Refuse what cannot be done, before any of it is done."""
    if len({alteration.name for alteration in alterations}) != len(alterations):
        raise RequestError(ErrorCode.INVALID_REQUEST, "A logger is named more than once.")
    for alteration in alterations:
        name, operation = alteration.name, alteration.operation
        if operation == AlterOperation.SET and alteration.value is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"No level is given for logger {name}.")
        if operation not in (AlterOperation.SET, AlterOperation.DELETE):
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"A level of logger {name} can be set or deleted, nothing else."
            )
        if name != ROOT and not (_is_ours(name) and name in logging.root.manager.loggerDict):
            raise RequestError(ErrorCode.INVALID_CONFIG, f"There is no logger {name}.")
        if operation == AlterOperation.DELETE:
            if name == ROOT:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, "The level of the root logger cannot be deleted."
                )
        elif alteration.value not in _LEVELS:
            raise RequestError(
                ErrorCode.INVALID_CONFIG,
                f"The level of logger {name} cannot be {alteration.value}, only one of {', '.join(_LEVELS)}.",
            )


def alter(alterations: Sequence[Alteration]) -> None:
    """Do what `check` let pass."""
    for alteration in alterations:
        level = (
            logging.NOTSET
            if alteration.operation == AlterOperation.DELETE
            else _LEVELS[alteration.value or ""]
        )
        _logger(alteration.name).setLevel(level)


def _is_ours(name: str) -> bool:
    return name == _PREFIX or name.startswith(_PREFIX + ".")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    """The name of the level, or of the next one above an unusual number."""
    return next((_NAMES[known] for known in sorted(_NAMES) if level <= known), "FATAL")
