"""Dead letters of a run: what workers have staged is published when its batch is committed, and then forgotten.

Invariant: what is staged is removed only when it is in the topic, or when its batch is not committed and nobody runs
it: then it will be found again. The run calls this between looks at its queries, from one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from flintmq.client.addresses import parse_addresses
from flintmq.client.cluster import ClusterClient
from flintmq.client.failures import ClientError
from flintmq.pipeline.checkpoints import Checkpoint
from flintmq.pipeline.dead_letters import Publisher
from flintmq.pipeline.model import Pipeline, TopicSource
from flintmq.pipeline.originals import InTheirTopics, Originals
from flintmq.pipeline.parts import DROP
from flintmq.pipeline.progress import Figures
from flintmq.pipeline.sources import otherwise_of
from flintmq.pipeline.staging import read_staged, staged
from flintmq.spark.options import SourceOptions, Topics

logger = logging.getLogger(__name__)


class Delivery:
    def __init__(self, checkpoint: Checkpoint, publisher: Publisher | None, dropping: set[str]) -> None:
        """`dropping` are sources whose bad records are only counted."""
        self._checkpoint = checkpoint
        self._publisher = publisher
        self._dropping = dropping
        self._done: dict[str, int] = {}
        """The last batch that was looked at, by sink."""

    def forget_unfinished(self) -> None:
        """Before the queries start: what batches have found that will be run again."""
        for sink in self._checkpoint.sinks():
            query, committed = self._query(sink), self._checkpoint.committed(sink)
            for batch, paths in staged(self._checkpoint.store, query).items():
                if batch > committed:
                    self._checkpoint.store.delete(paths)

    def deliver(self, sink: str, figures: Figures, *, is_last: bool) -> None:
        """What the committed batches of a sink have found. If there is no later look, it must succeed now."""
        last = figures.sinks[sink].batch
        if last <= self._done.get(sink, -1) and not is_last:
            return
        try:
            # Not what the progress says: a batch counts when its commit is there.
            committed = self._checkpoint.committed(sink)
            self._publish([sink], figures)
        except ClientError as error:
            if is_last:
                raise
            # What is staged stays so: the next look tries again, and so does the next run.
            logger.warning("dead letters of %s wait for the broker: %s", sink, error)
            return
        self._done[sink] = min(last, committed)

    def deliver_all(self, figures: Figures) -> None:
        """What all committed batches have found, of all sinks that ever ran, in one transaction."""
        self._publish(self._checkpoint.sinks(), figures)

    def _publish(self, sinks: Sequence[str], figures: Figures) -> None:
        store = self._checkpoint.store
        paths = [
            path
            for sink in sinks
            for batch, found in sorted(staged(store, self._query(sink)).items())
            if batch <= self._checkpoint.committed(sink)
            for path in found
        ]
        if not paths:
            return
        dead = read_staged(store, paths)
        for one in dead:
            if one.step in self._dropping:
                figures.dropped[one.step] = figures.dropped.get(one.step, 0) + 1
        letters = [one for one in dead if one.step not in self._dropping]
        if letters and self._publisher is not None:
            figures.dead_letters += self._publisher.publish(letters)
        store.delete(paths)

    def _query(self, sink: str) -> str:
        return self._checkpoint.query_id(sink) or ""


@contextmanager
def delivery_of(
    pipeline: Pipeline,
    checkpoint: Checkpoint,
    *,
    run: str = "",
    originals: Callable[[ClusterClient, SourceOptions], Originals] = InTheirTopics,
) -> Iterator[Delivery]:
    dropping = {
        name
        for name, source in pipeline.sources.items()
        if isinstance(source, TopicSource) and otherwise_of(pipeline, source) == DROP
    }
    if pipeline.dead_letters is None:
        yield Delivery(checkpoint, None, dropping)
        return
    bootstrap = tuple(parse_addresses(pipeline.bootstrap_servers))
    with ClusterClient(bootstrap, client_id="flintmq-pipeline") as client:
        topic = str(pipeline.dead_letters.topic)
        found = originals(client, SourceOptions(bootstrap, Topics(), ()))
        publisher = Publisher(client, topic, pipeline=pipeline.name, run=run, originals=found)
        yield Delivery(checkpoint, publisher, dropping)
