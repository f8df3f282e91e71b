"""What all clients of a history have in common: a thread, a seeded choice, values to send, librdkafka's settings."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from support.histories.history import Place, Recorder

PATIENCE_S = 45.0
STEP_S = 5.0
_PADDING_MAX = 200
# That connections break and producers are fenced is what is wanted here.
_QUIET = logging.Logger("librdkafka", logging.CRITICAL + 1)


@dataclass(frozen=True)
class Topics:
    plain: tuple[Place, ...]
    mixed: tuple[Place, ...]
    """For transactions and plain writes together."""
    copies: tuple[Place, ...]
    """What is made from the plain ones."""

    @property
    def all(self) -> tuple[Place, ...]:
        return self.plain + self.mixed + self.copies


@dataclass
class Scene:
    """Where the clients of one round meet."""

    address: str
    topics: Topics
    recorder: Recorder
    name: str
    patience_s: float = PATIENCE_S
    """How long anything may take that a client waits for while the broker is ill-treated."""
    stopping: threading.Event = field(default_factory=threading.Event)
    values: itertools.count[int] = field(default_factory=itertools.count)

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 250,
            "retry.backoff.ms": 50,
            "socket.timeout.ms": 10_000,
            "logger": _QUIET,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


class Client(threading.Thread):
    """A thread that works until the scene stops. What it dies of is kept for whoever joins it."""

    def __init__(self, scene: Scene, name: str, seed: int) -> None:
        super().__init__(name=f"{scene.name}.{name}", daemon=True)
        self.scene = scene
        self.recorder = scene.recorder
        self.random = Random(f"{seed} {name}")
        self.failure: BaseException | None = None

    def run(self) -> None:
        self._guarded(self.work)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self.failure = self.failure or error

    def work(self) -> None:
        raise NotImplementedError

    def payload(self, value: int) -> bytes:
        return b"%d " % value + b"." * self.random.randrange(_PADDING_MAX)


def value_in(payload: bytes | None) -> int:
    assert payload is not None
    return int(payload.partition(b" ")[0])


def error_in(exception: BaseException) -> KafkaError:
    """A fatal error that is raised while delivery reports are served comes as the cause of a SystemError."""
    cause = exception.__cause__ if isinstance(exception, SystemError) else exception
    assert isinstance(cause, KafkaException), exception
    error = cause.args[0]
    assert isinstance(error, KafkaError)
    return error
