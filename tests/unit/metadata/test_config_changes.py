"""Changes of a broker's settings: prepared, stored, committed; one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import closing
from typing import TypeVar

import pytest

from flintmq.errors import ConfigurationError, ErrorCode, RequestError
from flintmq.metadata.config_changes import ConfigChanges
from flintmq.settings import Alteration, AlterOperation, BrokerConfig
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import NODE_ID, SEED, SingleBroker

T = TypeVar("T")


class Prepared:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def commit(self) -> None:
        self._changes.events.append(f"commit of {sorted(self._changes.stored)}")

    def abandon(self) -> None:
        self._changes.events.append("abandon")


class Changes:
    """The settings of a broker, whose preparations take a while and are recorded."""

    def __init__(self, broker: SingleBroker) -> None:
        self._broker = broker
        self._configs = broker.services.configs
        self._configs.prepare = self._prepare
        self._changes = ConfigChanges(broker.services.metadata, self._configs, NODE_ID)
        self.events: list[str] = []
        self.fault: str | None = None

    async def _prepare(self, _: BrokerConfig) -> Prepared:
        for _turn in range(3):
            await asyncio.sleep(0)
        if self.fault is not None:
            raise ConfigurationError(self.fault)
        self.events.append("prepare")
        return Prepared(self)

    @property
    def stored(self) -> dict[str, str]:
        return dict(self._configs.values.dynamic)

    async def set(self, name: str, value: str, *, validate_only: bool = False) -> None:
        alteration = Alteration(name, AlterOperation.SET, value)
        await self._changes.alter_broker(str(NODE_ID), lambda _: [alteration], validate_only=validate_only)

    def run(self, work: Awaitable[T]) -> T:
        return self._broker.loop.run_until_complete(work)


@pytest.fixture
def changes() -> Iterator[Changes]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        broker = SingleBroker(loop, {}, SimulatedDisk(seed=SEED))
        yield Changes(broker)
        broker.close()


def test_a_change_is_committed_once_it_is_stored(changes: Changes) -> None:
    changes.run(changes.set("max.connections", "10"))
    assert changes.stored == {"max.connections": "10"}
    assert changes.events == ["prepare", "commit of ['max.connections']", "abandon"]


def test_changes_at_the_same_time_do_not_undo_each_other(changes: Changes) -> None:
    async def both() -> None:
        await asyncio.gather(changes.set("max.connections", "10"), changes.set("message.max.bytes", "1000"))

    changes.run(both())
    assert changes.stored == {"max.connections": "10", "message.max.bytes": "1000"}
    # One after the other: the second does not bind what the first has bound.
    assert changes.events == [
        *("prepare", "commit of ['max.connections']", "abandon"),
        *("prepare", "commit of ['max.connections', 'message.max.bytes']", "abandon"),
    ]


def test_what_cannot_be_prepared_is_not_stored(changes: Changes) -> None:
    changes.fault = "the port is taken"
    with pytest.raises(RequestError, match="the port is taken") as caught:
        changes.run(changes.set("max.connections", "10"))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert (changes.stored, changes.events) == ({}, [])


def test_a_change_that_is_only_checked_is_abandoned(changes: Changes) -> None:
    changes.run(changes.set("max.connections", "10", validate_only=True))
    assert (changes.stored, changes.events) == ({}, ["prepare", "abandon"])
