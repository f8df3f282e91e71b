"""Settings of topics as they are typed: `retention.ms=7d`, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable

from flintmq.cli.common.settings_options import parse_assignment
from flintmq.errors import ConfigurationError
from flintmq.settings import TOPIC_SETTINGS
from flintmq.settings.declaration import nearest


def parse_topic_settings(assignments: Iterable[str]) -> dict[str, str]:
    """Names and plain values. A name that is not known here is passed on: the broker may be a newer one.

    A name that is nearly one that is known is taken for a mistake.
    """
    settings: dict[str, str] = {}
    for text in assignments:
        name, value = parse_assignment(text, "--config")
        declared = TOPIC_SETTINGS.get(name)
        settings[name] = declared.plain(value) if declared else value
        if declared is None:
            refuse_near_miss(name)
    return settings


def refuse_near_miss(name: str) -> None:
    guess = None if name in TOPIC_SETTINGS else nearest(name, TOPIC_SETTINGS)
    if guess:
        raise ConfigurationError(f"topics have no setting {name}; did you mean {guess}?")
