"""All brokers of a cluster as one: finds them, remembers leaders, reconnects, tries again.

Invariant: one connection for each address, made when first needed. Every loop here is bounded by a number
of attempts and a time for each. Requests that must not be carried out twice are marked so by their callers,
and are not sent again once they may have arrived. This module must not know what any request means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from flintmq.client.addresses import Address
from flintmq.client.connection import BrokerConnection
from flintmq.client.credentials.login import Login
from flintmq.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionLost,
    NoBrokerReached,
    check,
)
from flintmq.client.metadata import MetadataCache, TopicMetadata
from flintmq.client.retries import ATTEMPTS, NOT_BEGUN, RETRIABLE, STALE_METADATA, delay_s
from flintmq.client.security import PLAINTEXT, ClientSecurity
from flintmq.client.tls import connector
from flintmq.client.transport import Connect
from flintmq.client.wire import Allocate
from flintmq.effects import Clock
from flintmq.effects.real import SystemClock
from flintmq.errors import ErrorCode, FlintError, ProtocolError, RequestError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import MetadataRequest, MetadataResponse
from flintmq.settings.declaration import nearest

T = TypeVar("T")
M = TypeVar("M", bound=Message)

DEFAULT_CLIENT_ID = "flintmq"
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0


class ClusterClient:
    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        attempts: int = ATTEMPTS,
        connect: Connect | None = None,
        allocate: Allocate = bytearray,
        security: ClientSecurity = PLAINTEXT,
        clock: Clock | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.metadata = MetadataCache()
        self.clock = clock or SystemClock()
        self.request_timeout_s = request_timeout_s
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._attempts = attempts
        self._connect = connect or connector(security, self.clock)
        self._allocate = allocate
        self._login = Login(security, self.clock)
        self._sleep = sleep
        self._connections: dict[Address, BrokerConnection] = {}
        self._reached = False
        self._stale = True

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ---- with another attempt where that may help

    def call(self, request: Message, response_type: type[M], judge: Callable[[M], object]) -> M:
        """Ask any broker. `judge` raises what the answer says went wrong."""

        def ask() -> M:
            response = self.any().call(request, response_type, self.request_timeout_s)
            judge(response)
            return response

        return self.attempt(ask)

    def call_controller(
        self,
        request: Message,
        response_type: type[M],
        judge: Callable[[M], object],
        *,
        highest: int | None = None,
    ) -> M:
        """Ask the controller for a change, once."""

        def ask() -> M:
            self.freshen()
            node = self.metadata.controller
            connection = self.broker(node) if node in self.metadata.brokers else self.any()
            response = connection.call(request, response_type, self.request_timeout_s, highest=highest)
            judge(response)
            return response

        return self.attempt(ask, repeatable=False)

    def topic(self, name: str, *, create: bool = False) -> TopicMetadata:
        """The topic as it is now; RequestError if there is none, unless the broker creates it when asked."""

        def ask() -> TopicMetadata:
            failed = self.refresh([name], create=create)
            code = failed.get(name, ErrorCode.NONE)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
                raise NoSuchTopic(name)
            check(code, what=f"topic {name}")
            return self.metadata.topics[name]

        return self.attempt(ask)

    def nearest_topic(self, name: str) -> str | None:
        """Return the topic that a name was probably meant to be. What is known of topics stays as it is."""
        response = self.any().call(MetadataRequest(topics=None), MetadataResponse, self.request_timeout_s)
        return nearest(name, [one.name for one in response.topics if one.name and not one.is_internal])

    def all_topics(self) -> dict[str, TopicMetadata]:
        self.attempt(lambda: self.refresh(None))
        return dict(sorted(self.metadata.topics.items()))

    def attempt(self, operation: Callable[[], T], *, repeatable: bool = True) -> T:
        """Run until it succeeds, fails for good, or has failed too often.

        What is not repeatable is repeated only while nothing can have been carried out.
        """
        failures = 0
        while True:
            try:
                return operation()
            except (ClientError, RequestError) as error:
                failures += 1
                if failures >= self._attempts or not self._may_pass(error, repeatable):
                    raise
                self.note_failure(error)
                self._sleep(delay_s(failures))

    def pause(self, failures: int) -> None:
        """Wait as long as suits that many failures in a row, for loops that count them themselves."""
        self._sleep(delay_s(failures))

    @property
    def attempts(self) -> int:
        return self._attempts

    def note_failure(self, error: FlintError) -> None:
        """What is known of the cluster may be outdated: ask anew before the next attempt."""
        if isinstance(error, ClientError) or (
            isinstance(error, RequestError) and error.code in STALE_METADATA
        ):
            self._stale = True

    def _may_pass(self, error: FlintError, repeatable: bool) -> bool:
        if isinstance(error, NoSuchTopic | AuthenticationFailed):
            return False
        if isinstance(error, RequestError):
            return error.code in (RETRIABLE if repeatable else NOT_BEGUN)
        if isinstance(error, NoBrokerReached):
            # A cluster that never answered is more likely misspelt than restarting.
            return self._reached
        return repeatable

    # ---- one attempt

    def refresh(self, topics: Sequence[str] | None, *, create: bool = False) -> dict[str, ErrorCode]:
        """Ask for the cluster and these topics (None: all of them); the errors of topics come back."""
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create,
        )
        response = self.any().call(request, MetadataResponse, self.request_timeout_s)
        check(response.error_code)
        if topics is None:
            self.metadata.topics.clear()
        self._stale = False
        return self.metadata.update(response)

    def freshen(self) -> None:
        """Ask again about what is known, if there is a reason to doubt it."""
        if self._stale:
            self.refresh(list(self.metadata.topics))

    def leader(self, topic: str, partition: int) -> int:
        node = self.metadata.leader_of(topic, partition)
        if node not in self.metadata.brokers:
            self._stale = True
            known = self.metadata.topics.get(topic)
            code = (
                ErrorCode.LEADER_NOT_AVAILABLE
                if known and partition in known.partitions
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            check(code, what=f"{topic}-{partition}")
        return node

    def exchange(
        self,
        requests: Mapping[int, Message],
        response_type: type[M],
        *,
        highest: int | None = None,
        timeout_s: float,
    ) -> dict[int, M | FlintError]:
        """One request for each broker, all sent before the first answer is awaited."""
        responses: dict[int, M | FlintError] = {}
        sent: dict[int, BrokerConnection] = {}
        for node, request in requests.items():
            try:
                connection = self.broker(node)
                connection.send(request, timeout_s, highest=highest)
                sent[node] = connection
            except FlintError as error:
                responses[node] = error
        for node, connection in sent.items():
            try:
                responses[node] = connection.receive(response_type, timeout_s)
            except FlintError as error:
                responses[node] = error
        return responses

    def any(self) -> BrokerConnection:
        """A connection to whichever broker answers."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        reasons: list[tuple[Address, str]] = []
        for address in dict.fromkeys((*self._bootstrap, *self.metadata.brokers.values())):
            try:
                return self._open(address)
            except NoBrokerReached as error:
                reasons += error.reasons
        raise NoBrokerReached(reasons)

    def broker(self, node: int) -> BrokerConnection:
        """A connection to this very broker."""
        address = self.metadata.brokers.get(node)
        if address is None:
            self._stale = True
            raise RequestError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not part of the cluster now"
            )
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        try:
            return self._open(address)
        except NoBrokerReached as error:
            raise NoBrokerReached(
                error.reasons,
                f"it is the address that the cluster gives for broker {node} (advertised.listeners)",
            ) from error

    def _open(self, address: Address) -> BrokerConnection:
        try:
            transport = self._connect(address, self._connect_timeout_s)
        except TimeoutError:
            raise NoBrokerReached([(address, f"no answer within {self._connect_timeout_s:g} s")]) from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise NoBrokerReached([(address, reason)]) from error
        connection = BrokerConnection(
            address,
            transport,
            clock=self.clock,
            client_id=self._client_id,
            allocate=self._allocate,
            login=self._login,
        )
        try:
            connection.negotiate(self._connect_timeout_s)
            connection.authenticate(self._connect_timeout_s)
        except ConnectionLost as error:
            reason = f"{error.reason} before a word was said; it may expect TLS or SASL, or be something else"
            raise NoBrokerReached([(address, reason)]) from error
        except ProtocolError as error:
            raise NoBrokerReached([(address, str(error))]) from error
        self._connections[address] = connection
        self._reached = True
        return connection


class NoSuchTopic(RequestError):
    """Metadata says that the topic is not there: asking again would not help."""

    def __init__(self, name: str, guess: str | None = None) -> None:
        hint = f"; did you mean {guess}?" if guess else ""
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}{hint}")
