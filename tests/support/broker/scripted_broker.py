"""A cluster that exists only in memory: decodes what a client sends, and answers what the test says.

    broker = ScriptedBroker({MetadataRequest: lambda request: MetadataResponse(…)})
    client = ClusterClient([Address("a", 1)], connect=broker.connect, …)

An answer may be None (the request has no answer) or an OSError (the connection breaks instead).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from flintmq.client.addresses import Address
from flintmq.client.cluster import ClusterClient
from flintmq.effects import Buffer
from flintmq.errors import ErrorCode
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import parse_request_header, response_header, response_is_flexible
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    request_of,
)

Answer = Callable[[Any], "Message | OSError | None"]

BOOTSTRAP = Address("bootstrap", 9092)
TOPIC_ID = bytes(range(16))


class ScriptedBroker:
    def __init__(
        self,
        answers: Mapping[type[Message], Answer],
        versions: Mapping[type[Message], tuple[int, int]] | None = None,
    ) -> None:
        self.answers = dict(answers)
        self.versions: dict[type[Message], tuple[int, int]] = {cls: cls.versions for cls in self.answers}
        self.versions[ApiVersionsRequest] = ApiVersionsRequest.versions
        self.versions.update(versions or {})
        self.requests: list[Any] = []
        """Everything received but ApiVersions, in order."""
        self.versions_used: dict[type[Message], int] = {}
        self.connected: list[Address] = []
        self.refused: set[Address] = set()

    def connect(self, address: Address, timeout_s: float) -> ScriptedTransport:
        if address in self.refused:
            raise ConnectionRefusedError(111, "Connection refused")
        self.connected.append(address)
        return ScriptedTransport(self)

    def answer(self, frame: bytes) -> bytes | OSError | None:
        """The whole frame of the answer to one whole frame without its size."""
        key, version, correlation_id, _, body = parse_request_header(frame, 0, len(frame))
        cls = request_of(key)
        if cls is ApiVersionsRequest:
            response, encoded_version = self._api_versions(version), version
            if response.error_code:
                encoded_version = 0
            return _frame(correlation_id, key, version, encode(response, encoded_version))
        request, _ = decode(cls, frame, version, body)
        self.requests.append(request)
        self.versions_used[cls] = version
        answer = self.answers[cls](request)
        if answer is None or isinstance(answer, OSError):
            return answer
        return _frame(correlation_id, key, version, encode(answer, version))

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        lowest, highest = self.versions[ApiVersionsRequest]
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE if lowest <= version <= highest else ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=cls.api_key, min_version=low, max_version=high)
                for cls, (low, high) in self.versions.items()
            ],
        )


class ScriptedTransport:
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._received = bytearray()
        self._outgoing: list[bytes] = []
        self._broken: OSError | None = None
        self.is_open = True

    def send(self, data: Buffer, timeout_s: float) -> None:
        if self._broken is not None:
            raise self._broken
        self._received += data
        while len(self._received) >= 4:
            end = 4 + struct.unpack_from(">i", self._received)[0]
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            answer = self._broker.answer(frame)
            if isinstance(answer, OSError):
                self._broken = answer
            elif answer is not None:
                self._outgoing.append(answer)

    def receive(self, room: memoryview, timeout_s: float) -> int:
        if not self._outgoing:
            raise self._broken or TimeoutError
        count = min(len(room), len(self._outgoing[0]))
        room[:count] = self._outgoing[0][:count]
        self._outgoing[0] = self._outgoing[0][count:]
        if not self._outgoing[0]:
            del self._outgoing[0]
        return count

    def close(self) -> None:
        self.is_open = False


class TestClock:
    """Stands still, but for those who sleep on it."""

    __test__ = False

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


def scripted_client(broker: ScriptedBroker, clock: TestClock | None = None) -> ClusterClient:
    clock = clock or TestClock()
    return ClusterClient([BOOTSTRAP], connect=broker.connect, clock=clock, sleep=clock.sleep)


def metadata(
    partitions: int = 1, *, leaders: Mapping[int, int] | None = None, topic: str = "t", brokers: int = 1
) -> Callable[[MetadataRequest], MetadataResponse]:
    """Answers for a cluster of brokers n0, n1, … with one topic; leader 0 unless said otherwise."""

    def answer(request: MetadataRequest) -> MetadataResponse:
        described = [
            MetadataResponse.MetadataResponseTopic(
                name=topic,
                topic_id=TOPIC_ID,
                partitions=[
                    MetadataResponse.MetadataResponsePartition(
                        partition_index=index,
                        leader_id=(leaders or {}).get(index, 0),
                        replica_nodes=[0],
                        isr_nodes=[0],
                    )
                    for index in range(partitions)
                ],
            )
        ]
        if request.topics is not None:
            names = [one.name for one in request.topics]
            unknown = [
                MetadataResponse.MetadataResponseTopic(
                    name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                for name in names
                if name != topic
            ]
            described = [one for one in described if one.name in names] + unknown
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=node, host=f"n{node}", port=9092)
                for node in range(brokers)
            ],
            cluster_id="c",
            controller_id=0,
            topics=described,
        )

    return answer


def _frame(correlation_id: int, key: int, version: int, body: bytes) -> bytes:
    content = response_header(correlation_id, response_is_flexible(key, version)) + body
    return struct.pack(">i", len(content)) + content
