"""Verification of produced transactional batches: whether their partitions take part in the transaction (KIP-890).

From Produce 12 on the first batch for a partition adds it to the transaction, and that is safe before the batch is
written; before, the client has added the partition and that is verified. A partition that has the transaction open
already needs neither. The result is checked once more when the batch is written, for the transaction may have ended
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import TYPE_CHECKING, Final

from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.produce import ProduceRequest
from flintmq.records.batch import HEADER_SIZE, TRANSACTIONAL, BatchHeader, read_header

if TYPE_CHECKING:
    from flintmq.broker.services import Services
    from flintmq.coordinator.transactions.remote_verification import Codes
    from flintmq.partitions.partition import Partition
    from flintmq.records.topic_partition import TopicPartition

_FIRST_ADDING: Final = 12
_FIRST_ABORTABLE: Final = 11
# How long a batch waits for the end of the transaction before, so that the client may begin the next at once.
_WAIT_S: Final = 0.1

_RETRIABLE: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def verification_error(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Return the coordinator's error code as a producer understands it."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code in _RETRIABLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


class TransactionVerification:
    """Decides which batches of one request may be written."""

    __slots__ = (
        "_codes", "_denied", "_error", "_is_pending", "_partitions", "_producer", "_services", "_transactional_id",
        "_version", "_waiter",
    )  # fmt: skip

    def __init__(
        self,
        message: ProduceRequest,
        version: int,
        services: Services,
        denied: Container[str | bytes] | None = None,
    ) -> None:
        """Topics in `denied` are passed over: they must not take part in the transaction."""
        assert message.transactional_id is not None
        self._transactional_id = message.transactional_id
        self._version = version
        self._services = services
        self._denied = denied
        self._partitions: list[TopicPartition] = []
        self._producer: tuple[int, int] | None = None
        self._codes: Codes = {}
        self._is_pending = False
        self._waiter: asyncio.Future[None] | None = None
        self._error = self._find_partitions(message)
        if self._partitions and self._error is None:
            self._begin()

    def _find_partitions(self, message: ProduceRequest) -> ErrorCode | None:
        """Note the partitions to verify, and the producer; return the error of the whole request."""
        partitions = self._services.partitions
        error: ErrorCode | None = None
        for topic, batches in message.topics:
            if self._denied is not None and topic in self._denied:
                continue
            for index, records in batches:
                partition = partitions.get(topic, index)
                if partition is None or partition.is_internal or records is None:
                    continue
                if len(records) < HEADER_SIZE:
                    continue
                header = read_header(records)
                if not header.attributes & TRANSACTIONAL:
                    continue
                producer = header.producer_id, header.producer_epoch
                if self._producer is None:
                    self._producer = producer
                elif self._producer != producer:
                    error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
                if not partition.log.producers.has_open_transaction(*producer):
                    self._partitions.append((partition.topic, partition.index))
                    partition.begin_verification(*producer)
        return error

    def _begin(self) -> None:
        assert self._producer is not None
        self._is_pending = True
        self._services.transactions.add_or_verify(
            self._transactional_id,
            *self._producer,
            self._partitions,
            adds=self._version >= _FIRST_ADDING,
            done=self._finish,
        )

    def _finish(self, codes: Codes) -> None:
        self._codes = codes
        self._is_pending = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def _is_concurrent(self) -> bool:
        return ErrorCode.CONCURRENT_TRANSACTIONS in self._codes.values()

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self._is_pending and not self._is_concurrent

    async def complete(self) -> None:
        """Wait for the coordinator, and for a short time for the end of the transaction before."""
        await self._wait()
        if self._is_concurrent:
            completed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._services.transactions.when_complete(
                self._transactional_id,
                _WAIT_S,
                lambda: None if completed.done() else completed.set_result(None),
            )
            await completed
            self._begin()
            await self._wait()

    async def _wait(self) -> None:
        if self._is_pending:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def check(self, partition: Partition, header: BatchHeader) -> None:
        """Raise RequestError if this batch may not be written now."""
        if self._error is not None:
            raise RequestError(self._error, "The batches of one request are of several producers.")
        name = partition.topic, partition.index
        producer = header.producer_id, header.producer_epoch
        code = self._codes.get(name, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            error = verification_error(code, knows_abortable=self._version >= _FIRST_ABORTABLE)
            raise RequestError(error, f"The partition does not take part in the transaction: {code.name}.")
        producers = partition.log.producers
        if producers.has_open_transaction(*producer):
            return
        transactions = self._services.transactions
        if transactions.is_here(self._transactional_id):
            is_open = transactions.takes_part(self._transactional_id, *producer, name)
        else:
            is_open = partition.is_verifying(producer[0])
        if not is_open:
            raise RequestError(ErrorCode.INVALID_TXN_STATE, "The transaction has ended.")
        if (
            self._version >= _FIRST_ADDING
            and header.base_sequence != 0
            and not producers.is_known(producer[0])
        ):
            raise RequestError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer[0]} is not known here and must begin at sequence 0.",
            )
