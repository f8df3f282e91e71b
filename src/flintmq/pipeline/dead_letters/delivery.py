"""Dead letters of a run: what workers have staged is published when its batch is committed, and then forgotten.

Invariant: what is staged is removed only when it is in the topic, or when its batch will be run again and find it
again. The run calls this between looks at its queries, from one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from flintmq.arrow.scan.options import SourceOptions, TopicSelection
from flintmq.client.addresses import parse_addresses
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import ClientError
from flintmq.pipeline.dead_letters.publisher import DeadLetterPublisher
from flintmq.pipeline.dead_letters.record_lookup import RecordLookup, SourceTopicLookup
from flintmq.pipeline.dead_letters.staging import read_staged, staged_files
from flintmq.pipeline.runtime.checkpoint import Checkpoint
from flintmq.pipeline.runtime.progress import RunProgress
from flintmq.pipeline.security import pipeline_security
from flintmq.pipeline.sources.frames import on_error_of
from flintmq.pipeline.spec.model import Pipeline, TopicSource
from flintmq.pipeline.spec.parts import DROP

logger = logging.getLogger(__name__)


class DeadLetterDelivery:
    def __init__(
        self, checkpoint: Checkpoint, publisher: DeadLetterPublisher | None, dropping: set[str]
    ) -> None:
        """`dropping` are sources whose bad records are only counted."""
        self._checkpoint = checkpoint
        self._publisher = publisher
        self._dropping = dropping
        self._done: dict[str, int] = {}
        """The last batch that was looked at, by sink."""

    def forget_unfinished(self, sink: str, is_written: Callable[[int], bool]) -> None:
        """Before the queries start: what a batch has found that will be run again.

        One that the sink has is skipped by the sink and finds nothing: what it has found before stays.
        """
        query = self._checkpoint.query_id(sink)
        if query is None:
            return
        committed = self._checkpoint.committed(sink)
        for batch, paths in staged_files(self._checkpoint.store, query).items():
            if batch > committed and not is_written(batch):
                self._checkpoint.store.delete(paths)

    def deliver(self, sink: str, progress: RunProgress, *, is_last: bool) -> None:
        """What the committed batches of a sink have found. If there is no later look, it must succeed now."""
        last = progress.sinks[sink].batch
        if last <= self._done.get(sink, -1) and not is_last:
            return
        try:
            # Not what the progress says: a batch counts when its commit is there.
            committed = self._checkpoint.committed(sink)
            self._publish([sink], progress)
        except ClientError as error:
            if is_last:
                raise
            # What is staged stays so: the next look tries again, and so does the next run.
            logger.warning("dead letters of %s wait for the broker: %s", sink, error)
            return
        self._done[sink] = min(last, committed)

    def deliver_all(self, progress: RunProgress) -> None:
        """What all committed batches have found, of all sinks that ever ran, in one transaction."""
        self._publish(self._checkpoint.sinks(), progress)

    def _publish(self, sinks: Sequence[str], progress: RunProgress) -> None:
        store = self._checkpoint.store
        paths = [path for sink in sinks for path in self._committed(sink)]
        if not paths:
            return
        rejected = read_staged(store, paths)
        for one in rejected:
            if one.step in self._dropping:
                progress.dropped[one.step] = progress.dropped.get(one.step, 0) + 1
        published = [one for one in rejected if one.step not in self._dropping]
        if published and self._publisher is not None:
            progress.dead_letters += self._publisher.publish(published)
        store.delete(paths)

    def _committed(self, sink: str) -> Iterator[str]:
        """Staged files, in the order of their batches."""
        query = self._checkpoint.query_id(sink)
        if query is None:
            return
        # First: all files of a batch are there when its commit is.
        committed = self._checkpoint.committed(sink)
        for batch, paths in sorted(staged_files(self._checkpoint.store, query).items()):
            if batch <= committed:
                yield from paths


@contextmanager
def delivery_of(
    pipeline: Pipeline,
    checkpoint: Checkpoint,
    *,
    owner: str | None = None,
    run: str = "",
    lookup: Callable[[ClusterClient, SourceOptions], RecordLookup] = SourceTopicLookup,
) -> Iterator[DeadLetterDelivery]:
    """`owner` is the id of the pipeline's own checkpoint, where this is another."""
    dropping = {
        name
        for name, source in pipeline.sources.items()
        if isinstance(source, TopicSource) and on_error_of(pipeline, source) == DROP
    }
    if pipeline.dead_letters is None:
        yield DeadLetterDelivery(checkpoint, None, dropping)
        return
    bootstrap = tuple(parse_addresses(pipeline.bootstrap_servers))
    security = pipeline_security(pipeline)
    with ClusterClient(bootstrap, client_id="flintmq-pipeline", security=security) as client:
        topic = str(pipeline.dead_letters.topic)
        found = lookup(client, SourceOptions(bootstrap, TopicSelection(), (), security=security))
        publisher = DeadLetterPublisher(
            client, topic, pipeline=pipeline.name, checkpoint=owner or checkpoint.id, run=run, lookup=found
        )
        yield DeadLetterDelivery(checkpoint, publisher, dropping)
