"""What tasks and driver do for a write, without Spark: rows in, and what the driver has to know out.

A task writes with a connection of its own, and so does the driver when it commits: nothing outlives the call. With a
query and a batch, rows are written exactly once (`exactly_once`); without, at least once. Arrow is imported where
rows are written only, so that the driver's commit, which runs in a new process each time, starts sooner.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from flintmq.arrow.worker_gc import freeze_imports
from flintmq.arrow.write.exactly_once import ExactlyOnce, WriteResult
from flintmq.arrow.write.options import SinkOptions
from flintmq.client.cluster import ClusterClient
from flintmq.client.retries import ATTEMPTS
from flintmq.client.transaction import OpenedTransaction, end
from flintmq.errors import FlintError

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


class WriteTask(NamedTuple):
    partition: int
    attempt: int
    """How often the same partition was begun before, in this run."""


def write_at_least_once(options: SinkOptions, task: WriteTask, batches: Iterable[pa.RecordBatch]) -> int:
    """The number of rows, which are in the log."""
    with _client(options) as client:
        return _write_rows(client, options, task, batches, None)


def write_once(
    options: SinkOptions, query: str, batch: int, task: WriteTask, batches: Iterable[pa.RecordBatch]
) -> WriteResult:
    """The rows are in the log, in a transaction that the driver is to end; or the batch was decided before."""
    with _client(options) as client:
        exactly_once = _exactly_once(options, client)
        if exactly_once.is_decided(query, batch):
            return WriteResult(query, batch, 0, None, was_decided=True)
        iterator = iter(batches)
        first = next((one for one in iterator if one.num_rows), None)
        if first is None:
            return WriteResult(query, batch, 0, None)
        transaction = exactly_once.begin(
            query, partition=task.partition, attempt=task.attempt, timeout_ms=options.transaction_timeout_ms
        )
        try:
            count = _write_rows(client, options, task, chain([first], iterator), transaction)
        except Exception:
            _give_up(options, transaction)
            raise
        return WriteResult(query, batch, count, transaction)


def commit(options: SinkOptions, results: Sequence[WriteResult]) -> None:
    if results:
        with _client(options, attempts=_attempts(options)) as client:
            _exactly_once(options, client).commit(results)


def abort(options: SinkOptions, results: Sequence[WriteResult]) -> None:
    if results:
        with _client(options) as client:
            _exactly_once(options, client).abort(results)


def _write_rows(
    client: ClusterClient,
    options: SinkOptions,
    task: WriteTask,
    batches: Iterable[pa.RecordBatch],
    transaction: OpenedTransaction | None,
) -> int:
    from flintmq.arrow.write.row_writer import RowWriter
    from flintmq.client.batch_producer import BatchProducer

    freeze_imports()
    producer = BatchProducer(
        client, codec=options.codec, transaction=transaction, attempts=_attempts(options)
    )
    writer = RowWriter(client, producer, options, first_partition=task.partition)
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return writer.row_count


def _give_up(options: SinkOptions, transaction: OpenedTransaction) -> None:
    """On a connection of its own: the other may be full of answers. If it fails, the driver or the broker does it."""
    try:
        with _client(options) as client:
            end(client, [transaction], committed=False)
    except FlintError as error:
        logger.warning("%s stays open for now: %s", transaction.id, error)


@contextmanager
def _client(options: SinkOptions, *, attempts: int = ATTEMPTS) -> Iterator[ClusterClient]:
    with ClusterClient(
        options.bootstrap,
        client_id=options.client_id,
        request_timeout_s=options.request_timeout_s,
        attempts=attempts,
        security=options.security,
    ) as client:
        yield client


def _attempts(options: SinkOptions) -> int:
    """Attempts are about a second apart, but for the first ones."""
    return ATTEMPTS + int(options.patience_s)


def _exactly_once(options: SinkOptions, client: ClusterClient) -> ExactlyOnce:
    return ExactlyOnce(client, ledger_topic=options.ledger_topic, rewrites_torn=options.rewrites_torn)
