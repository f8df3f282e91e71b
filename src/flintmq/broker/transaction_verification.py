"""A produce request whose batches are part of a transaction.

From Produce 12 on a partition is added to the transaction by the first batch for it, and that is safe before the
batch is written; before, the client has added it and that is looked up. A partition that has the transaction open
already needs neither. What is asked here is looked at once more when the batch is written, for the transaction may
have ended meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.produce import ProduceRequest
from flintmq.records.batch import HEADER_SIZE, TRANSACTIONAL, BatchHeader, read_header

if TYPE_CHECKING:
    from asyncio import Future

    from flintmq.broker.services import Services
    from flintmq.coordinator.transactions.coordinator import Codes
    from flintmq.partitions.partition import Partition

_FIRST_ADDING = 12
_FIRST_ABORTABLE = 11
# How long a batch is kept waiting for the end of the transaction before, by which the client may begin another.
_WAIT_S = 0.1

_NOT_NOW = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def admission_code(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """What the coordinator says, as a producer understands it."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code in _NOT_NOW:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


class TransactionVerification:
    """Which batches of one request may be written."""

    __slots__ = (
        "_asked",
        "_codes",
        "_error",
        "_places",
        "_producer",
        "_services",
        "_transactional_id",
        "_version",
    )

    def __init__(self, message: ProduceRequest, version: int, services: Services) -> None:
        assert message.transactional_id is not None
        self._transactional_id = message.transactional_id
        self._version = version
        self._services = services
        self._places: list[tuple[str, int]] = []
        self._producer: tuple[int, int] | None = None
        self._error: ErrorCode | None = None
        self._codes: Codes = {}
        self._asked: Future[Codes] | None = None
        self._look_at(message)
        if self._places and self._error is None:
            self._ask()

    def _look_at(self, message: ProduceRequest) -> None:
        partitions = self._services.partitions
        for topic, batches in message.topics:
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
                    self._error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
                if not partition.log.producers.has_open(*producer):
                    self._places.append((partition.topic, partition.index))

    def _ask(self) -> None:
        assert self._producer is not None
        adds = self._version >= _FIRST_ADDING
        self._asked = self._services.transactions.admit(
            self._transactional_id, *self._producer, self._places, adds=adds
        )

    @property
    def is_known(self) -> bool:
        """Whether there is nothing to wait for."""
        if self._asked is None:
            return True
        if not self._asked.done():
            return False
        self._codes = self._asked.result()
        return ErrorCode.CONCURRENT_TRANSACTIONS not in self._codes.values()

    async def known(self) -> None:
        if self._asked is None:
            return
        self._codes = await self._asked
        if ErrorCode.CONCURRENT_TRANSACTIONS in self._codes.values():
            await self._services.transactions.completed(self._transactional_id, _WAIT_S)
            self._ask()
            self._codes = await self._asked

    def check(self, partition: Partition, header: BatchHeader) -> None:
        """RequestError if this batch may not be written now."""
        if self._error is not None:
            raise RequestError(self._error, "The batches of one request are of several producers.")
        place = partition.topic, partition.index
        producer = header.producer_id, header.producer_epoch
        code = self._codes.get(place, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            told = admission_code(code, knows_abortable=self._version >= _FIRST_ABORTABLE)
            raise RequestError(told, f"The partition does not take part in the transaction: {code.name}.")
        producers = partition.log.producers
        if producers.has_open(*producer):
            return
        if not self._services.transactions.takes_part(self._transactional_id, *producer, place):
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
