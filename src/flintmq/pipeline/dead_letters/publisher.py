"""Dead letters on their way to their topic: records as they were, with headers that say whence and why.

    flintmq.pipeline, .checkpoint, .step, .error, .topic, .partition, .offset, .attempt, .replays

What a batch has found is published when the batch is committed: all in one transaction, which also commits the
offsets of a group, those behind the records that were published. Invariant: whoever publishes takes the transactional
id first and looks at the offsets then; a record at or behind them is published, one before them was. So each is in
the topic once, whoever dies, and however many sinks have found it. Id and group are those of a checkpoint: one that
begins anew finds letters of its own, of which other offsets say nothing. `docs/decisions/0009` goes through the
kills.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from flintmq.arrow.codec.arrays import HEADER, HEADERS
from flintmq.arrow.write.options import SinkOptions
from flintmq.arrow.write.row_writer import RowWriter
from flintmq.client.admin.groups import committed_offsets
from flintmq.client.admin.topics import TopicPartition
from flintmq.client.batch_producer import BatchProducer
from flintmq.client.cluster import ClusterClient
from flintmq.client.coordinators import Coordinated, call_coordinator
from flintmq.client.errors import check
from flintmq.client.transaction import OpenedTransaction, begin, end, longest_timeout_ms
from flintmq.errors import ErrorCode, RequestError
from flintmq.pipeline.dead_letters.record_lookup import DeadLetter, Originals
from flintmq.pipeline.dead_letters.staging import Dead
from flintmq.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from flintmq.records.compression import Codec

logger = logging.getLogger(__name__)

PREFIX: Final = "flintmq."
REPLAYS: Final = "replays"
"""The header of a letter that has failed again: the queries of the replay in which it has, by their ids."""
_OWN: Final = frozenset(
    PREFIX + name
    for name in (
        *("pipeline", "checkpoint", "step", "error", "topic", "partition", "offset", "attempt", "lost"),
        REPLAYS,
    )
)
_ATTEMPTS_MAX: Final = 5
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_ROWS_MAX: Final = 10_000

Offsets = dict[TopicPartition, int]


class DeadLetterPublisher:
    """Of one pipeline's run."""

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        pipeline: str,
        checkpoint: str,
        run: str,
        originals: Originals,
    ) -> None:
        """`checkpoint` is the id of one: what was published is remembered for as long as it is gone on with.

        `run` tells runs apart that read different topics: the usual one, and a replay of dead letters. In a replay
        each query has offsets of its own, for each takes letters of its own.
        """
        self._client = client
        self._topic = topic
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._run = run
        self._originals = originals
        digest = hashlib.sha256(f"{pipeline}/{topic}/{checkpoint}/{run}".encode()).hexdigest()[:16]
        self._transactional_id = f"flintmq-pipeline-dead-{digest}"

    def publish(self, dead: Sequence[Dead]) -> int:
        """How many were not published before."""
        if not dead:
            return 0
        letters = self._originals.find(dead)
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            # Before the offsets are looked at: they are not known while somebody's transaction may change them.
            transaction = begin(
                self._client, self._transactional_id, timeout_ms=longest_timeout_ms(self._client)
            )
            try:
                return self._write(letters, transaction)
            except RequestError as error:
                if error.code not in _FENCED or attempt == _ATTEMPTS_MAX:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _write(self, letters: Sequence[DeadLetter], transaction: OpenedTransaction) -> int:
        ends: dict[str, Offsets] = {}
        left: set[int] = set()
        for group, of_group in self._by_group(letters).items():
            done = self._done(group, {letters[at].place for at in of_group})
            for at in of_group:
                one = letters[at]
                if one.offset >= done.get(one.place, 0):
                    places = ends.setdefault(group, {})
                    places[one.place] = max(places.get(one.place, 0), one.offset + 1)
                    left.add(at)
        new = [letters[at] for at in sorted(left)]
        if not new:
            return 0
        producer = BatchProducer(self._client, codec=Codec.NONE, transaction=transaction)
        writer = RowWriter(self._client, producer, SinkOptions((), topic=self._topic), first_partition=0)
        for at in range(0, len(new), _ROWS_MAX):
            writer.write(self._rows(new[at : at + _ROWS_MAX]))
        writer.finish()
        for group, places in ends.items():
            self._commit_offsets(group, places, transaction)
        for refused in end(self._client, [transaction], committed=True).values():
            raise refused
        logger.info("%s: %d dead letters are in the topic %s", self._pipeline, len(new), self._topic)
        return len(new)

    def _by_group(self, letters: Sequence[DeadLetter]) -> dict[str, list[int]]:
        """The indices of letters, by the groups whose offsets say whether they were published."""
        found: dict[str, list[int]] = {}
        for at, one in enumerate(letters):
            of_step = (self._pipeline, "dead", one.dead.step, self._checkpoint)
            owners = [(self._run, query) for query in one.dead.queries] if self._run else [()]
            for owner in owners:
                found.setdefault(".".join((*of_step, *owner)), []).append(at)
        return found

    def _done(self, group: str, places: Iterable[TopicPartition]) -> Offsets:
        found = committed_offsets(self._client, group, sorted(places))
        # Offsets of a topic that was deleted since say nothing of the one that has its name now.
        return {place: one.offset for place, one in found.items() if one.metadata == self._topic_id(place[0])}

    def _topic_id(self, topic: str) -> str:
        return self._client.topic(topic).id.hex()

    def _commit_offsets(self, group: str, places: Offsets, transaction: OpenedTransaction) -> None:
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in places.items():
            by_topic.setdefault(topic, {})[partition] = offset
        request = TxnOffsetCommitRequest(
            transactional_id=transaction.id,
            group_id=group,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=self._topic_id(topic),
                        )
                        for partition, offset in partitions.items()
                    ],
                )
                for topic, partitions in by_topic.items()
            ],
        )

        def judge(response: TxnOffsetCommitResponse) -> None:
            for one in response.topics:
                for partition in one.partitions:
                    check(partition.error_code, what=f"group {group}")

        call_coordinator(self._client, Coordinated.GROUP, group, request, TxnOffsetCommitResponse, judge)

    def _rows(self, letters: Sequence[DeadLetter]) -> pa.RecordBatch:
        keys: list[str] = []
        values: list[bytes | None] = []
        ends = [0]
        for one in letters:
            for header in one.headers:
                if header["key"] not in _OWN:
                    keys.append(header["key"])
                    values.append(header["value"])
            about = self._about(one)
            keys += about
            values += about.values()
            ends.append(len(keys))
        headers = pa.StructArray.from_arrays(
            [pa.array(keys, pa.string()), pa.array(values, pa.binary())], fields=list(HEADER)
        )
        return pa.RecordBatch.from_arrays(
            [
                pa.array([one.key for one in letters], pa.binary()),
                pa.array([one.value for one in letters], pa.binary()),
                pa.ListArray.from_arrays(pa.array(ends, pa.int32()), headers, type=HEADERS),
            ],
            names=["key", "value", "headers"],
        )

    def _about(self, letter: DeadLetter) -> dict[str, bytes]:
        dead = letter.dead
        about = {
            "flintmq.pipeline": self._pipeline.encode(),
            "flintmq.checkpoint": self._checkpoint.encode(),
            "flintmq.step": dead.step.encode(),
            "flintmq.error": dead.error.encode(),
            "flintmq.topic": dead.topic.encode(),
            "flintmq.partition": b"%d" % dead.partition,
            "flintmq.offset": b"%d" % dead.offset,
            "flintmq.attempt": b"%d" % letter.attempt,
        }
        if self._run:
            about[PREFIX + REPLAYS] = ",".join(dead.queries).encode()
        return {**about, "flintmq.lost": b"true"} if letter.is_lost else about
