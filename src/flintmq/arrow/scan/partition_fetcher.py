"""One partition's bytes over the wire: the next fetch is asked for before the last one is looked at.

    fetcher.ask(position, max_bytes)     sends
    fetcher.take()                       waits for the answer to it

Invariant: at most one fetch is on its way. What may pass by itself is waited out, as long as the options say; a topic
that is gone, or another topic of its name, is `TopicGone`. Knows nothing of records.
"""

from __future__ import annotations

from typing import Final

from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.client.cluster import ClusterClient
from flintmq.client.connection import BrokerConnection
from flintmq.client.errors import ClientError, check, may_pass
from flintmq.client.retries import RETRIABLE
from flintmq.errors import ErrorCode, FlintError, ProtocolError, RequestError
from flintmq.protocol.messages import FetchRequest, FetchResponse
from flintmq.records.uuids import ZERO_UUID

Fetched = FetchResponse.PartitionData

_MAX_WAIT_MS: Final = 500
_NO_SESSION: Final = -1
_LAST_VERSION_BY_NAME: Final = 12
_BELIEVED_GONE_AFTER: Final = 3
"""A broker that has just started may not know every topic yet: so often in a row it must say so."""


class TopicGone(FlintError):
    """The topic that was planned for is not there any more; the message says how."""


class PartitionFetcher:
    def __init__(self, client: ClusterClient, wanted: OffsetRange, *, read_committed: bool) -> None:
        self._client = client
        self._topic = wanted.topic
        self._topic_id = wanted.topic_id
        self._partition = wanted.partition
        self._read_committed = read_committed
        self._request: FetchRequest | None = None
        self._sent_on: BrokerConnection | None = None
        self._known = False
        self._missing = 0

    def ask(self, position: int, max_bytes: int) -> None:
        """Send a fetch. If that fails, `take` tries again."""
        assert self._request is None, "the answer to the last fetch was not taken"
        self._request = self._fetch(position, max_bytes)
        if self._known:
            try:
                self._send(self._request)
            except (ClientError, RequestError):
                # Whatever it was, `take` meets it again and knows what to do.
                self._sent_on = None

    def take(self) -> Fetched:
        """The answer; RequestError if the broker refuses for good."""
        request = self._request
        assert request is not None, "nothing was asked for"
        failures = 0
        while True:
            try:
                found = self._receive(request)
                self._request = None
                return found
            except (ClientError, RequestError) as error:
                failures += 1
                self._sent_on = None
                if not _may_pass(error) or failures >= self._client.attempts:
                    self._request = None
                    raise
                self._known = False
                self._client.note_failure(error)
                self._client.pause(failures)

    def _receive(self, request: FetchRequest) -> Fetched:
        if self._sent_on is None:
            if not self._known:
                self._find()
            self._send(request)
        assert self._sent_on is not None
        connection, self._sent_on = self._sent_on, None
        response = connection.receive(
            FetchResponse, self._client.request_timeout_s + request.max_wait_ms / 1000
        )
        check(response.error_code)
        found = [one for topic in response.responses for one in topic.partitions]
        if len(found) != 1 or found[0].partition_index != self._partition:
            raise ProtocolError(f"the broker's answer is not about {self._topic}-{self._partition} alone")
        check(found[0].error_code, what=f"{self._topic}-{self._partition}")
        return found[0]

    def _send(self, request: FetchRequest) -> None:
        connection = self._client.broker(self._client.leader(self._topic, self._partition))
        highest = None if self._topic_id != ZERO_UUID else _LAST_VERSION_BY_NAME
        connection.send(request, self._client.request_timeout_s, highest=highest)
        self._sent_on = connection

    def _find(self) -> None:
        """Ask where the partition is, and whether it is still the one that was planned for."""
        code = self._client.refresh([self._topic]).get(self._topic, ErrorCode.NONE)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._missing += 1
            if self._missing >= _BELIEVED_GONE_AFTER:
                raise TopicGone(f"the topic {self._topic} is not there any more: it was deleted")
        check(code, what=f"topic {self._topic}")
        topic = self._client.metadata.topics[self._topic]
        self._missing = 0
        if topic.has_id and self._topic_id not in (topic.id, ZERO_UUID):
            raise TopicGone(f"the topic {self._topic} was deleted and created again")
        self._known = True

    def _fetch(self, position: int, max_bytes: int) -> FetchRequest:
        partition = FetchRequest.FetchPartition(
            partition=self._partition, fetch_offset=position, partition_max_bytes=max_bytes
        )
        return FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(self._read_committed),
            session_epoch=_NO_SESSION,
            topics=[
                FetchRequest.FetchTopic(topic=self._topic, topic_id=self._topic_id, partitions=[partition])
            ],
        )


def _may_pass(error: FlintError) -> bool:
    # The driver has reached the cluster a moment ago, so even one that never answered here is waited for.
    return may_pass(error) or (isinstance(error, RequestError) and error.code in RETRIABLE)
