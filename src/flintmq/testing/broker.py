"""A real broker inside a test: started in milliseconds, on a free port, with its faults and its clock in hand.

    with Broker(num_partitions=3) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

It runs in a thread with an event loop of its own, so blocking clients and clients on the test's own loop both
work. Nothing of the process is touched: no signals, no logging, no limits, no environment. Invariant: after
`stop` nothing is left, no thread, no port, and no folder but one that the test gave.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from flintmq.app.broker import Broker as Application
from flintmq.app.broker import StartupReport
from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.services import Services
from flintmq.errors import ConfigurationError
from flintmq.settings import Listener, load
from flintmq.settings.names import HOSTNAME, PORTS, is_known
from flintmq.testing import broker_state
from flintmq.testing.broker_state import Record
from flintmq.testing.clock import ControlledClock
from flintmq.testing.disk import UnsyncedDisk
from flintmq.testing.faults import Faults
from flintmq.testing.interceptor import Interceptor
from flintmq.testing.loop_thread import LoopThread
from flintmq.testing.request_log import RequestLog
from flintmq.testing.snapshot import Snapshot, read_folder, write_folder

_LISTENERS, _FOLDER = "listeners", "log.dirs"
_ADDRESSES = (_LISTENERS, PORTS, HOSTNAME)
# No second port that a test did not ask for.
_DEFAULTS = {"flint.rest.port": "-1"}


class Broker:
    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        **named: object,
    ) -> None:
        """Settings by Kafka's names, or as keywords with underscores for dots: `num_partitions=3`."""
        given = {**_texts(settings or {}), **_texts({_setting(name): named[name] for name in named})}
        if _FOLDER in given:
            raise ConfigurationError(f"{_FOLDER}: give the folder as data_dir")
        self._settings = {**_DEFAULTS, **given}
        if not any(name in given for name in _ADDRESSES):
            self._settings[_LISTENERS] = f"PLAINTEXT://127.0.0.1:{port}"
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: LoopThread | None = None
        self._listeners: list[Listener] = []
        self._application: Application
        self._interceptor: Interceptor
        self._services: Services
        self.clock = ControlledClock()
        self.clock.on_change = self._time_moved
        self.faults = Faults()
        self.requests = RequestLog()

    # ---- life

    def start(self) -> Broker:
        """Returns once clients may connect. One that was stopped may be started again."""
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="flintmq-", ignore_cleanup_errors=True)
        self._thread = LoopThread("flintmq-testing")
        try:
            self._listeners = self._thread.run(self._start(self._settings)).listeners
        except BaseException:
            self._end()
            raise
        return self

    def stop(self) -> None:
        """Stop, whatever clients are doing; a second time does nothing."""
        if self._thread is None:
            return
        try:
            self._thread.run(self._stop())
        finally:
            self._end()

    def restart(self) -> None:
        """Stop and start again at the same address; all that was written is there."""
        self._thread_running.run(self._restart(None))

    async def _start(self, settings: Mapping[str, str]) -> StartupReport:
        loaded = load(command_line=[*settings.items(), (_FOLDER, self.data_dir)])
        self._application = Application(
            loaded, clock=self.clock, disk=UnsyncedDisk(), around=self._around, owns_process=False
        )
        return await self._application.start()

    def _around(self, dispatcher: Dispatcher, services: Services) -> Interceptor:
        self._services = services
        self._interceptor = Interceptor(dispatcher, services, self.faults, self.requests)
        return self._interceptor

    async def _stop(self) -> None:
        self._interceptor.stop()
        await self._application.stop()

    async def _restart(self, snapshot: Snapshot | None) -> None:
        await self._stop()
        if snapshot is not None:
            write_folder(snapshot, self.data_dir)
        listeners = ",".join(str(listener) for listener in self._listeners)
        settings = {name: text for name, text in self._settings.items() if name not in _ADDRESSES}
        await self._start({**settings, _LISTENERS: listeners})

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _time_moved(self) -> None:
        if self._thread is not None:
            self._thread.call(self._application.housekeep)

    @property
    def _thread_running(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError("the broker does not run: start it, or use it in a `with` block")
        return self._thread

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # ---- where it is

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, as every client takes it."""
        _ = self._thread_running
        return ",".join(str(listener).partition("://")[2] for listener in self._listeners)

    @property
    def port(self) -> int:
        """That of the first listener."""
        _ = self._thread_running
        return self._listeners[0].port

    @property
    def data_dir(self) -> str:
        """The folder with its logs."""
        directory = self._data_dir if self._temporary is None else self._temporary.name
        if directory is None:
            raise RuntimeError("the broker does not run, and was given no folder")
        return directory

    # ---- what it holds

    def topics(self) -> dict[str, int]:
        """The names of all topics, with their partition counts."""
        return self._thread_running.call(broker_state.topics, self._services)

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> None:
        """With settings by Kafka's names, such as `{"cleanup.policy": "compact"}`."""
        self._thread_running.run(
            broker_state.create_topic(self._services, name, partitions, dict(_texts(configs or {})))
        )

    def delete_topic(self, name: str) -> None:
        self._thread_running.run(broker_state.delete_topic(self._services, name))

    def records(
        self, topic: str, partition: int | None = None, *, read_committed: bool = False
    ) -> list[Record]:
        """All records that consumers can see, by partition and offset.

        With `read_committed`, only those that a consumer with `isolation.level=read_committed` can see.
        """
        return self._thread_running.call(
            broker_state.records, self._services, topic, partition, read_committed
        )

    def produce(
        self,
        topic: str,
        *values: str | bytes | None,
        key: str | bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> list[Record]:
        """Write these values in one batch, making the topic if need be; the records as they are stored.

        Without a partition, that of the key as Java's client finds it, or 0.
        """
        if not values:
            raise ValueError("there is nothing to produce")
        return self._thread_running.run(
            broker_state.produce(
                self._services,
                topic,
                [_bytes(value) for value in values],
                key=_bytes(key),
                headers=list(headers),
                timestamp=timestamp,
                partition=partition,
            )
        )

    def groups(self) -> dict[str, str]:
        """The names of all consumer groups, with their states: `Stable`, `Empty`, …"""
        return self._thread_running.run(broker_state.groups(self._services))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets that a group has committed, by topic and partition."""
        return self._thread_running.run(broker_state.committed(self._services, group))

    def transactions(self) -> dict[str, str]:
        """All transactional ids, with their states: `Ongoing`, `CompleteCommit`, …"""
        return self._thread_running.run(broker_state.transactions(self._services))

    # ---- its state as a whole

    def snapshot(self) -> Snapshot:
        """Topics, records and settings as they are now. Clients notice nothing."""
        return self._thread_running.call(read_folder, self.data_dir)

    def restore(self, snapshot: Snapshot) -> None:
        """Bring a snapshot back, in place of all that is there. The address stays; clients reconnect."""
        self._thread_running.run(self._restart(snapshot))


def _setting(keyword: str) -> str:
    """Some of the short names have underscores of their own."""
    return keyword if is_known(keyword) else keyword.replace("_", ".")


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in settings.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_text, value))
    return str(value)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
