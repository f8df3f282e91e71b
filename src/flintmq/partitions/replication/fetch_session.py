"""A follower's side of a fetch session (KIP-227): after the first request only what changed is named. Pure.

    request = session.request(wanted)      all that is to be fetched now
    session.accepted(response)             or session.reset(), after an error

Invariant: the leader knows exactly what `_sent` says. After a lost response it is not known what the leader knows, so
the session begins again with everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from flintmq.protocol.messages import FetchRequest

PartitionKey = tuple[bytes, int]
"""A topic's id and a partition of it."""

_NO_SESSION: Final = 0
_INITIAL: Final = 0
_EPOCH_MAX: Final = 0x7FFFFFFF


class FetchPosition(NamedTuple):
    """What a follower says of one partition when it fetches."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    start_offset: int
    max_bytes: int


class FollowerFetchSession:
    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _INITIAL
        self._sent: dict[PartitionKey, FetchPosition] = {}

    def request(self, wanted: Mapping[PartitionKey, FetchPosition]) -> FetchRequest:
        """Return a request for all that is wanted: its session and partitions; the caller sets the rest."""
        is_full = self._epoch == _INITIAL
        changed = wanted if is_full else {k: v for k, v in wanted.items() if self._sent.get(k) != v}
        forgotten = [] if is_full else [key for key in self._sent if key not in wanted]
        self._sent = dict(wanted)
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        for (topic_id, index), position in changed.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(_partition(index, position))
        dropped: dict[bytes, FetchRequest.ForgottenTopic] = {}
        for topic_id, index in forgotten:
            if topic_id not in dropped:
                dropped[topic_id] = FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[])
            dropped[topic_id].partitions.append(index)
        return FetchRequest(
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(dropped.values()),
        )

    def accepted(self, session_id: int) -> None:
        """Go on after a response without an error; a leader that keeps no session answers with id 0."""
        if session_id == _NO_SESSION:
            self.reset()
        elif session_id == self._id:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        else:
            self._id, self._epoch = session_id, 1

    def reset(self) -> None:
        """Begin again with everything; the leader drops the session that it may still have."""
        self._epoch = _INITIAL
        self._sent = {}


def _partition(index: int, position: FetchPosition) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(
        partition=index,
        current_leader_epoch=position.leader_epoch,
        fetch_offset=position.fetch_offset,
        last_fetched_epoch=position.last_fetched_epoch,
        log_start_offset=position.start_offset,
        partition_max_bytes=position.max_bytes,
    )
