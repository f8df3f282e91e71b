"""One partition of an internal topic, and the machine that its records make.

    call → decide → append → apply → (high watermark) → responses

Everything up to the responses happens in one step of the loop, so two decisions never see the same state. A machine
whose records could not be read is not asked; one whose partition is gone, has failed, or is led by another broker is
thrown away with it. A shard belongs to one leader epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar

from flintmq.coordinator.runtime.loader import TransactionEnd, read_records
from flintmq.coordinator.runtime.machine import CoordinatorMachine, Decision, StoredRecord, TimerKey, Token
from flintmq.effects import Clock, Executor, Timer, Timers
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.partitions.acknowledgements import Settled
from flintmq.partitions.partition import Partition, Role
from flintmq.protocol.codegen.structures import Message
from flintmq.records.batch import NO_EPOCH, NO_PRODUCER_ID, read_header
from flintmq.records.markers import Marker
from flintmq.records.record import build_batch
from flintmq.storage import reader
from flintmq.storage.log import Appended
from flintmq.storage.visibility import Isolation

logger: Final = logging.getLogger(__name__)

M = TypeVar("M", bound=CoordinatorMachine)

_READ_BYTES: Final = 1024 * 1024
_NOT_AVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_CODES: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What errors of the partition mean for a client of the coordinator, as in Kafka."""
_RECORDS_PER_TURN: Final = 500
"""About five milliseconds: a broker that loads many shards must still answer."""


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"
    """Its partition is gone or has failed, or its records cannot be read."""


class CoordinatorShard(Generic[M]):
    def __init__(
        self,
        partition: Partition,
        machine: M,
        *,
        clock: Clock,
        timers: Timers,
        executor: Executor,
        respond: Callable[[Token, Message], object],
        fail: Callable[[Token, ErrorCode], object],
        settled: Callable[[CoordinatorShard[M], Decision], object] | None = None,
    ) -> None:
        """`settled` is called with each decision whose records are safe, before its responses are sent."""
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.machine = machine
        self.state = ShardState.LOADING
        self._clock = clock
        self._timers = timers
        self._executor = executor
        self._respond = respond
        self._fail = fail
        self._settled = settled
        self._pending: dict[TimerKey, Timer] = {}
        self._last_written = -1

    # ---- life

    async def load(self) -> None:
        """Apply all that the partition holds, then serve."""
        log = self.partition.log
        offset = log.start_offset
        try:
            while self.state is ShardState.LOADING:
                found = reader.read(log, offset, _READ_BYTES, Isolation.LOG_END, at_least_one=True)
                if found is None:
                    break
                records, offset = await self._executor.run(read_records, found, offset)
                await self._apply(records)
        except (FlintError, OSError) as error:
            self.state = ShardState.CLOSED
            logger.error("%s cannot be loaded, what it coordinates is not available: %s", log.name, error)
            return
        if self.state is ShardState.LOADING:
            # Whatever is answered from the records that were read waits until these are safe.
            self._last_written = log.end_offset - 1
            self.state = ShardState.ACTIVE
            self._perform(self.machine.loaded(self._clock.now_ms()))

    async def _apply(self, records: list[StoredRecord | TransactionEnd]) -> None:
        """Apply what was read, in turns of a bounded length."""
        for at in range(0, len(records), _RECORDS_PER_TURN):
            if self.state is not ShardState.LOADING:
                return
            for record in records[at : at + _RECORDS_PER_TURN]:
                if isinstance(record, TransactionEnd):
                    self.machine.end_transaction(
                        record.producer_id, record.offset, committed=record.committed
                    )
                else:
                    self.machine.apply(record)
            if at + _RECORDS_PER_TURN < len(records):
                await asyncio.sleep(0)

    def close(self) -> None:
        self.state = ShardState.CLOSED
        for timer in self._pending.values():
            timer.cancel()
        self._pending.clear()

    def check(self) -> None:
        """Raise RequestError if it cannot be called now."""
        if self.state is ShardState.LOADING:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is being loaded.")
        if (
            self.state is ShardState.CLOSED
            or self.partition.deleted
            or self.partition.log.offline is not None
        ):
            raise RequestError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator's partition is not served."
            )
        if self.partition.role is not Role.LEADER or self.partition.leader_epoch != self.leader_epoch:
            # Its leadership has just ended, and the coordinator is about to learn of it.
            raise RequestError(ErrorCode.NOT_COORDINATOR, "The coordinator has moved.")

    # ---- calls

    def call(self, token: Token, decide: Callable[[M], Decision]) -> None:
        """Carry out one decision. Whatever goes wrong fails the call of `token`."""
        try:
            self.check()
            decision = decide(self.machine)
        except RequestError as error:
            self._fail(token, error.code)
            return
        except Exception:
            logger.exception("a decision of %s failed", self.partition.log.name)
            self._fail(token, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._perform(decision)

    def carry_out(self, decide: Callable[[M], Sequence[Decision]]) -> None:
        if self.state is ShardState.ACTIVE and not self.partition.deleted:
            for decision in decide(self.machine):
                self._perform(decision)

    def expire(self, key: TimerKey) -> None:
        self._pending.pop(key, None)
        if self.state is not ShardState.ACTIVE or self.partition.deleted:
            return
        try:
            decision = self.machine.expire(key, self._clock.now_ms())
        except Exception:
            logger.exception("a timer of %s failed", self.partition.log.name)
            return
        self._perform(decision)

    def _perform(self, decision: Decision) -> None:
        if decision.records:
            try:
                self._write(decision)
            except (FlintError, OSError) as error:
                self._write_failed(decision, error)
                return
        self._set_timers(decision)
        if self._settled is not None:
            self._when_visible(lambda failure: self._notify_settled(decision, failure))
        if decision.responses:
            self._respond_when_visible(decision.responses)

    def _notify_settled(self, decision: Decision, failure: FlintError | None) -> None:
        if failure is None and self._settled is not None:
            self._settled(self, decision)

    def _write(self, decision: Decision) -> None:
        """Append and apply, in one step. As with acks=all, nothing is written while too few replicas are in sync."""
        if not self.partition.has_min_isr:
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"Too few replicas of {self.partition.log.name} are in sync."
            )
        now_ms = self._clock.now_ms()
        records = decision.records
        producer_id, epoch = decision.producer or (NO_PRODUCER_ID, NO_EPOCH)
        batch = memoryview(
            bytearray(
                build_batch(
                    [(key, value, now_ms, ()) for key, value in records],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    is_transactional=decision.producer is not None,
                )
            )
        )
        if len(batch) > self.partition.log.config.max_message_bytes:
            raise RequestError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(batch)} bytes do not fit into one batch of {self.partition.log.topic}.",
            )
        base_offset = self.partition.append(batch, read_header(batch), now_ms).base_offset
        self._last_written = base_offset + len(records) - 1
        for at, (key, value) in enumerate(records):
            self.machine.apply(StoredRecord(key, value, base_offset + at, now_ms, producer_id))

    def end_transaction(self, marker: Marker, *, bumps_epoch: bool) -> Appended:
        """Write a marker to the partition. One that is being loaded finds it there by itself."""
        appended = self.partition.append_marker(marker, self._clock.now_ms(), bumps_epoch=bumps_epoch)
        if self.state is ShardState.ACTIVE:
            self._last_written = appended.last_offset
            self.machine.end_transaction(marker.producer_id, appended.base_offset, committed=marker.committed)
        return appended

    def _write_failed(self, decision: Decision, error: Exception) -> None:
        code = _CODES.get(error.code, error.code) if isinstance(error, RequestError) else _NOT_AVAILABLE
        logger.error("%s could not be written: %s", self.partition.log.name, error)
        if decision.failed is not None:
            instead = decision.failed(code)
            self._set_timers(instead)
            if instead.responses:
                self._respond_when_visible(instead.responses)
            return
        self._set_timers(decision)
        for token, _ in decision.responses:
            self._fail(token, code)

    def _respond_when_visible(self, responses: list[tuple[Token, Message]]) -> None:
        """Send responses once the records they depend on, written or read, are as safe as the topic promises."""

        def settle(failure: FlintError | None) -> None:
            for token, message in responses:
                if failure is None:
                    self._respond(token, message)
                else:
                    self._fail(token, _code_of_failure(failure))

        self._when_visible(settle)

    def _when_visible(self, call: Settled) -> None:
        if self._last_written < self.partition.log.high_watermark:
            call(None)
        else:
            self.partition.when_visible(self._last_written, call)

    def _set_timers(self, decision: Decision) -> None:
        for key, delay_ms in decision.timers.items():
            old = self._pending.pop(key, None)
            if old is not None:
                old.cancel()
            if delay_ms is not None:
                self._pending[key] = self._timers.call_later(delay_ms / 1000, self.expire, key)


def _code_of_failure(failure: FlintError) -> ErrorCode:
    """A client looks for the coordinator again if the partition is led elsewhere."""
    return _CODES.get(error_code_of(failure), _NOT_AVAILABLE)
