"""Publishes dead letters to their topic: records unchanged, with headers that name their origin and the error.

    flintmq.pipeline, .checkpoint, .step, .error, .topic, .partition, .offset, .attempt, .replays

The dead letters of a batch are published when the batch is committed: in one transaction of `arrow.write.side_topic`,
which also commits the offsets of a group, those after the published records. Invariant: a record at or after the
group's offsets is published, one before them was. So each is in the topic once, whichever process dies and however
many sinks have found it. Transactional id and group belong to a checkpoint: a new one publishes dead letters of its
own, of which the offsets of others say nothing. `docs/decisions/0009` goes through the kills.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from flintmq.arrow.codec.arrays import HEADER, HEADERS
from flintmq.arrow.write.options import SinkOptions
from flintmq.arrow.write.side_topic import (
    ROWS_PER_BATCH_MAX,
    GroupOffsets,
    SideTopic,
    SideTransaction,
    read_group_offsets,
)
from flintmq.client.cluster import ClusterClient
from flintmq.pipeline.dead_letters.record_lookup import DeadLetter, RecordLookup
from flintmq.pipeline.dead_letters.staging import RejectedRecord
from flintmq.records.topic_partition import TopicPartition

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
        lookup: RecordLookup,
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
        self._lookup = lookup
        digest = hashlib.sha256(f"{pipeline}/{topic}/{checkpoint}/{run}".encode()).hexdigest()[:16]
        self._side_topic = SideTopic(
            client, SinkOptions((), topic=topic), transactional_id=f"flintmq-pipeline-dead-{digest}"
        )

    def publish(self, rejected: Sequence[RejectedRecord]) -> int:
        """Publish them, and return how many were not published before."""
        if not rejected:
            return 0
        dead_letters = self._lookup.find(rejected)
        return self._side_topic.attempt(lambda transaction: self._write_missing(dead_letters, transaction))

    def _write_missing(self, dead_letters: Sequence[DeadLetter], transaction: SideTransaction) -> int:
        topic_ids = {
            one.topic_partition[0]: self._client.topic(one.topic_partition[0]).id.hex()
            for one in dead_letters
        }
        ends: dict[str, Offsets] = {}
        left: set[int] = set()
        for group, of_group in self._by_group(dead_letters).items():
            partitions = {dead_letters[at].topic_partition for at in of_group}
            done = read_group_offsets(self._client, group, partitions, topic_ids)
            for at in of_group:
                one = dead_letters[at]
                if one.offset >= done.get(one.topic_partition, 0):
                    of_partition = ends.setdefault(group, {})
                    of_partition[one.topic_partition] = max(
                        of_partition.get(one.topic_partition, 0), one.offset + 1
                    )
                    left.add(at)
        new = [dead_letters[at] for at in sorted(left)]
        if not new:
            return 0
        batches = (
            self._rows(new[at : at + ROWS_PER_BATCH_MAX]) for at in range(0, len(new), ROWS_PER_BATCH_MAX)
        )
        transaction.commit(
            batches, [GroupOffsets(group, offsets, topic_ids) for group, offsets in ends.items()]
        )
        logger.info("%s: %d dead letters are in the topic %s", self._pipeline, len(new), self._topic)
        return len(new)

    def _by_group(self, dead_letters: Sequence[DeadLetter]) -> dict[str, list[int]]:
        """Return indices of dead letters, by the groups whose offsets say whether they were published."""
        found: dict[str, list[int]] = {}
        for at, one in enumerate(dead_letters):
            of_step = (self._pipeline, "dead", one.rejected.step, self._checkpoint)
            owners = [(self._run, query) for query in one.rejected.queries] if self._run else [()]
            for owner in owners:
                found.setdefault(".".join((*of_step, *owner)), []).append(at)
        return found

    def _rows(self, dead_letters: Sequence[DeadLetter]) -> pa.RecordBatch:
        keys: list[str] = []
        values: list[bytes | None] = []
        ends = [0]
        for one in dead_letters:
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
                pa.array([one.key for one in dead_letters], pa.binary()),
                pa.array([one.value for one in dead_letters], pa.binary()),
                pa.ListArray.from_arrays(pa.array(ends, pa.int32()), headers, type=HEADERS),
            ],
            names=["key", "value", "headers"],
        )

    def _about(self, dead_letter: DeadLetter) -> dict[str, bytes]:
        rejected = dead_letter.rejected
        about = {
            "flintmq.pipeline": self._pipeline.encode(),
            "flintmq.checkpoint": self._checkpoint.encode(),
            "flintmq.step": rejected.step.encode(),
            "flintmq.error": rejected.error.encode(),
            "flintmq.topic": rejected.topic.encode(),
            "flintmq.partition": b"%d" % rejected.partition,
            "flintmq.offset": b"%d" % rejected.offset,
            "flintmq.attempt": b"%d" % dead_letter.attempt,
        }
        if self._run:
            about[PREFIX + REPLAYS] = ",".join(rejected.queries).encode()
        return {**about, "flintmq.lost": b"true"} if dead_letter.is_lost else about
