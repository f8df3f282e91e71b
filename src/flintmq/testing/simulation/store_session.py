"""One process's session with the simulated store: `metadata.store.MetadataStore` with all that can go wrong.

A request without a response in time is StoreUnavailable, or OutcomeUncertain if it may have changed something.
Watches ask again by themselves, so that a session that was cut off catches up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from flintmq.effects import Timer
from flintmq.errors import MetadataStoreError
from flintmq.metadata.local_store import check_limits
from flintmq.metadata.store import (
    OutcomeUncertain,
    Put,
    StoreChange,
    StoreUnavailable,
    StoreView,
    TxnOutcome,
)
from flintmq.testing.simulation.process import SimulatedProcess
from flintmq.testing.simulation.wires import STORE, Pipe

if TYPE_CHECKING:
    from flintmq.testing.simulation.store import SimulatedStore

T = TypeVar("T")

_RENEWALS_PER_TTL: Final = 3
# A session whose requests have waited for so long treats the store as unreachable.
_NOTICED_S: Final = 1.0
_LATE_S: Final = (0.01, 3.0)

_Failure = type[StoreUnavailable] | type[OutcomeUncertain]


class SessionLease:
    """Renewed by its session; lost once the store says so."""

    def __init__(self, session: StoreSession, lease_id: int, ttl: float, deadline: float) -> None:
        self.id = lease_id
        self.ttl = ttl
        self._session = session
        self._deadline = deadline
        self._ended = asyncio.Event()
        self._renewal: Timer | None = None
        self._renew_later()

    def deadline(self) -> float:
        return self._deadline

    async def lost(self) -> None:
        await self._ended.wait()

    async def revoke(self) -> None:
        if not self._ended.is_set():
            store = self._session.store
            await self._session.call(lambda: store.revoke(self.id), failure=OutcomeUncertain)
            self.end()

    def end(self) -> None:
        self._ended.set()
        self._session.leases.pop(self.id, None)
        if self._renewal is not None:
            self._renewal.cancel()

    def _renew_later(self) -> None:
        loop = self._session.process.loop
        self._renewal = loop.call_later(self.ttl / _RENEWALS_PER_TTL, self._renew)

    def _renew(self) -> None:
        """Ask again and again, whatever became of the request before."""
        sent_at = self._session.process.clock.monotonic()

        def renewed(is_alive: object) -> None:
            if self._ended.is_set():
                return
            if is_alive:
                self._deadline = max(self._deadline, sent_at + self.ttl)
            else:
                self.end()

        self._session.send(lambda: self._session.store.renew(self.id), renewed)
        self._renew_later()


class SessionWatch:
    def __init__(self, session: StoreSession, prefix: str, after: int) -> None:
        self._session = session
        self._prefix = prefix
        self._after = after
        self._id = session.store.watch_id()

    def __aiter__(self) -> AsyncIterator[StoreChange]:
        return self

    async def __anext__(self) -> StoreChange:
        while True:
            try:
                change = await self._session.poll(self._id, self._prefix, self._after)
            except TimeoutError:
                continue
            self._after = change.revision
            return change


class StoreSession:
    """`MetadataStore` for one process. Made by `SimulatedStore.open`."""

    max_ops = 128
    max_bytes = 1 << 20

    def __init__(
        self, store: SimulatedStore, process: SimulatedProcess, machine: str, *, timeout_s: float
    ) -> None:
        self.store = store
        self.process = process
        self.leases: dict[int, SessionLease] = {}
        self._machine = machine
        self._timeout_s = timeout_s
        self._to_store = Pipe(store.wires, machine, STORE, self._at_store)
        self._to_session = Pipe(store.wires, STORE, machine, self._at_session)
        self._calls: dict[asyncio.Future[Any], None] = {}
        self._polls: dict[int, asyncio.Future[Any]] = {}
        self._refusal = ""

    async def get(self, prefix: str, *, stale: bool = False) -> StoreView:
        return await self.call(lambda: self.store.view(prefix), failure=StoreUnavailable)

    async def txn(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        expect, writes = dict(expect), dict(writes)
        check_limits(expect, writes, max_ops=self.max_ops, max_bytes=self.max_bytes)
        self._check_open()
        fault = self.store.take_fault(self._machine)
        try:
            if fault is not None:
                await self._fail(fault.value, lambda: self.store.txn(expect, writes))
            return await self.call(lambda: self.store.txn(expect, writes), failure=OutcomeUncertain)
        except OutcomeUncertain:
            self.store.uncertain_count += 1
            raise

    def watch(self, prefix: str, *, after: int) -> SessionWatch:
        return SessionWatch(self, prefix, after)

    async def lease(self, ttl: float) -> SessionLease:
        if ttl <= 0:
            raise ValueError(f"a lease lives for more than {ttl} seconds")
        sent_at = self.process.clock.monotonic()
        lease_id = await self.call(lambda: self.store.grant(ttl, self._machine), failure=StoreUnavailable)
        lease = self.leases[lease_id] = SessionLease(self, lease_id, ttl, sent_at + ttl)
        return lease

    async def close(self) -> None:
        """Finish what was asked for before, end the leases, then refuse everything."""
        if self._refusal:
            return
        self._refusal = "the session with the metadata store is closed"
        while self._calls:
            await asyncio.wait(list(self._calls))
        ended = asyncio.Event()
        for lease in list(self.leases.values()):
            self.send(partial(self.store.revoke, lease.id), lambda _: ended.set())
        if self.leases:
            timer = self.process.loop.call_later(self._timeout_s, ended.set)
            await ended.wait()
            timer.cancel()
        for lease in list(self.leases.values()):
            lease.end()
        for watch_id, poll in list(self._polls.items()):
            self.store.end_poll(watch_id)
            if not poll.done():
                poll.set_exception(StoreUnavailable(self._refusal))

    # ---- requests

    async def call(self, request: Callable[[], T], *, failure: _Failure) -> T:
        """Let the store carry out a request; `failure` is raised if it does not respond."""
        self._check_open()
        stalled_since_s = self._to_store.stalled_since_s
        now_s = self.store.wires.timeline.now_s
        if stalled_since_s is not None and now_s - stalled_since_s > _NOTICED_S:
            await asyncio.sleep(0.01)
            raise StoreUnavailable("the metadata store cannot be reached")
        future: asyncio.Future[Any] = self.process.loop.create_future()

        def respond(result: object) -> None:
            if future.done():
                return
            if isinstance(result, MetadataStoreError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self._calls[future] = None
        future.add_done_callback(lambda done: self._calls.pop(done, None))
        self.send(request, respond)
        timer = self.process.loop.call_later(
            self._timeout_s, respond, failure(f"the metadata store did not respond in {self._timeout_s} s")
        )
        try:
            return cast(T, await future)
        finally:
            timer.cancel()

    def send(self, request: Callable[[], object], respond: Callable[[object], object]) -> None:
        """Send a request; `respond` is called on the loop with its result or its MetadataStoreError, or never."""
        if self.process.is_alive:
            self._to_store.send((request, respond))

    async def poll(self, watch_id: int, prefix: str, after: int) -> StoreChange:
        """Return the next change, or raise TimeoutError if nothing was heard for a while."""
        self._check_open()
        future: asyncio.Future[Any] = self.process.loop.create_future()
        self._polls[watch_id] = future

        def respond(result: object) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def ask() -> object:
            self.store.poll(watch_id, prefix, after, lambda change: self._to_session.send((respond, change)))
            return _NO_RESPONSE

        self.send(ask, respond)
        timer = self.process.loop.call_later(self._timeout_s, respond, TimeoutError())
        try:
            change = cast(StoreChange, await future)
            self._check_open()
            return change
        finally:
            timer.cancel()
            if self._polls.get(watch_id) is future:
                del self._polls[watch_id]

    async def _fail(self, kind: str, request: Callable[[], object]) -> None:
        """Fail a transaction in one of the ways of `TxnFault`."""
        wires = self.store.wires
        wires.trace.note(f"{self._machine}: transaction {kind}")
        if kind == "late":
            # It is on its way, whatever becomes of the process.
            wires.timeline.after(
                wires.random.uniform(*_LATE_S), lambda: self._to_store.send((request, lambda _: None))
            )
        elif kind == "applied":
            await self.call(request, failure=OutcomeUncertain)
        await asyncio.sleep(wires.delay_s())
        if kind == "unavailable":
            raise StoreUnavailable("the metadata store is unavailable")
        raise OutcomeUncertain("the connection to the metadata store was lost")

    # ---- arrivals

    def _at_store(self, message: tuple[Callable[[], object], Callable[[object], object]]) -> None:
        request, respond = message
        result: object
        try:
            result = request()
        except MetadataStoreError as error:
            result = error
        if result is not _NO_RESPONSE:
            self._to_session.send((respond, result))

    def _at_session(self, message: tuple[Callable[[object], object], object]) -> None:
        respond, result = message
        self.process.post(respond, result)

    def _check_open(self) -> None:
        if self._refusal:
            raise StoreUnavailable(self._refusal)


_NO_RESPONSE: Final = object()
