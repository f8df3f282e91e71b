"""Transactions that are begun in one process and ended in another: many at once, by name, producer id and epoch.

    transaction = begin(client, "loader-3", timeout_ms=longest_timeout_ms(client))
    …                                                  its records are written by a `BatchProducer`
    end(client, [transaction, …], committed=True)      by whoever knows the triples

Only the second generation of transactions will do (KIP-890): each end bumps the epoch, so that the end of one
transaction can be asked for again and again, and never ends another one. Partitions are added by being written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from flintmq.client.admin.transactions import DescribedTransaction
from flintmq.client.cluster import ClusterClient
from flintmq.client.coordinators import CoordinatorType
from flintmq.client.errors import ClientError, check, may_pass
from flintmq.client.retries import RETRIABLE
from flintmq.errors import ErrorCode, FlintError, ProtocolError, RequestError, UnsupportedVersion
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

M = TypeVar("M", bound=Message)

DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
"""Kafka's default for the longest that a broker allows."""

_IN_FLIGHT: Final = 64
_LAST_EPOCH: Final = 32766
"""After it the producer id changes, and the epoch alone would not tell a committed transaction."""
_SECOND_GENERATION: Final = 2
_BROKER_RESOURCE: Final = 4
_MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
_AGAIN: Final = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""Also a transaction whose markers are on their way: it is complete in a moment."""


class OpenedTransaction(NamedTuple):
    """All it takes to end a transaction."""

    id: str
    producer_id: int
    epoch: int


def longest_timeout_ms(client: ClusterClient) -> int:
    """How long the broker lets a transaction stay open at most."""

    def ask() -> DescribeConfigsResponse:
        client.freshen()
        node = min(client.metadata.brokers)
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(node), configuration_keys=[_MAX_TIMEOUT]
        )
        request = DescribeConfigsRequest(resources=[resource])
        response = client.broker(node).call(request, DescribeConfigsResponse, client.request_timeout_s)
        for one in response.results:
            check(one.error_code, one.error_message, what=f"broker {node}")
        return response

    for result in client.attempt(ask).results:
        for setting in result.configs:
            if setting.name == _MAX_TIMEOUT and setting.value:
                return int(setting.value)
    return DEFAULT_MAX_TIMEOUT_MS


def begin(client: ClusterClient, transactional_id: str, *, timeout_ms: int) -> OpenedTransaction:
    """Take the id: whoever had it is fenced, and what they left open is aborted. Nothing is open yet."""
    _require_second_generation(client)
    while True:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        responses = _ask_coordinators(
            client, {transactional_id: request}, InitProducerIdResponse, lambda response: response.error_code
        )
        response = responses[transactional_id]
        check(response.error_code, what=CoordinatorType.TRANSACTIONAL_ID.named(transactional_id))
        if response.producer_epoch < _LAST_EPOCH:
            return OpenedTransaction(transactional_id, response.producer_id, response.producer_epoch)
        # Taken once more it gets another producer id, with the first epoch.


def end(
    client: ClusterClient, transactions: Sequence[OpenedTransaction], *, committed: bool
) -> dict[OpenedTransaction, RequestError]:
    """End them all; which ones the broker refuses to end so, and why. Ending again what has ended so is fine."""
    by_id = {one.id: one for one in transactions}
    requests = {
        one.id: EndTxnRequest(
            transactional_id=one.id,
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            committed=committed,
        )
        for one in transactions
    }
    responses = _ask_coordinators(client, requests, EndTxnResponse, lambda response: response.error_code)
    refused: dict[OpenedTransaction, RequestError] = {}
    for name, response in responses.items():
        try:
            check(response.error_code, what=CoordinatorType.TRANSACTIONAL_ID.named(name))
        except RequestError as error:
            refused[by_id[name]] = error
    return refused


def describe(client: ClusterClient, transactional_ids: Iterable[str]) -> dict[str, DescribedTransaction]:
    """Those of them that their coordinators know."""
    requests = {name: DescribeTransactionsRequest(transactional_ids=[name]) for name in transactional_ids}
    responses = _ask_coordinators(client, requests, DescribeTransactionsResponse, _described_code)
    found: dict[str, DescribedTransaction] = {}
    for name, response in responses.items():
        one = _only(response)
        if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue
        check(one.error_code, what=CoordinatorType.TRANSACTIONAL_ID.named(name))
        found[name] = DescribedTransaction(
            name,
            one.transaction_state,
            one.producer_id,
            one.producer_epoch,
            one.transaction_timeout_ms,
            None if one.transaction_start_time_ms < 0 else one.transaction_start_time_ms,
            -1,
            tuple(sorted((topic.topic, index) for topic in one.topics for index in topic.partitions)),
        )
    return found


def _only(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse.TransactionState:
    if len(response.transaction_states) != 1:
        raise ProtocolError("the broker was asked for one transaction and describes another number of them")
    return response.transaction_states[0]


def _described_code(response: DescribeTransactionsResponse) -> int:
    return _only(response).error_code


def _require_second_generation(client: ClusterClient) -> None:
    greeting = client.attempt(client.any).greeting
    levels = {one.name: one.max_version_level for one in greeting.finalized_features}
    if levels.get("transaction.version", 0) < _SECOND_GENERATION:
        raise UnsupportedVersion(
            "the cluster has transaction.version below 2; transactions that outlive their producer need 2 "
            "(FlintMQ has it, Apache Kafka from 4.0 on once its features are upgraded)"
        )


def _ask_coordinators(
    client: ClusterClient,
    requests: Mapping[str, Message],
    response_type: type[M],
    code_of: Callable[[M], int],
) -> dict[str, M]:
    """One request for each id, many in flight. Each may be asked again: for all of them that changes nothing."""
    waiting = dict(requests)
    responses: dict[str, M] = {}
    failures = 0
    while waiting:
        count = len(waiting)
        error: FlintError | None = None
        homes = client.attempt(lambda: _coordinators(client, list(waiting)))
        try:
            for node, names in homes.items():
                for start in range(0, len(names), _IN_FLIGHT):
                    part = {name: waiting[name] for name in names[start : start + _IN_FLIGHT]}
                    for name, response in _exchange(client, node, part, response_type):
                        code = code_of(response)
                        if code in _AGAIN:
                            error = RequestError(ErrorCode(code), f"{name} cannot be asked now")
                            continue
                        responses[name] = response
                        del waiting[name]
        except ClientError as lost:
            if not may_pass(lost):
                raise
            error = lost
        except RequestError as refused:
            if refused.code not in _AGAIN:
                raise
            error = refused
        if error is not None:
            failures = 1 if len(waiting) < count else failures + 1
            if failures >= client.attempts:
                raise error
            client.note_failure(error)
            client.pause(failures)
    return responses


def _exchange(
    client: ClusterClient, node: int, requests: Mapping[str, Message], response_type: type[M]
) -> Iterable[tuple[str, M]]:
    """All are sent before the first answer is awaited; every answer is taken off the connection."""
    connection = client.broker(node)
    for request in requests.values():
        connection.send(request, client.request_timeout_s)
    return [(name, connection.receive(response_type, client.request_timeout_s)) for name in requests]


def _coordinators(client: ClusterClient, names: Sequence[str]) -> dict[int, list[str]]:
    """The brokers that look after them."""
    response = client.any().call(
        FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTIONAL_ID, coordinator_keys=list(names)),
        FindCoordinatorResponse,
        client.request_timeout_s,
    )
    homes: dict[int, list[str]] = {}
    for one in response.coordinators:
        check(one.error_code, one.error_message, what=CoordinatorType.TRANSACTIONAL_ID.named(one.key))
        homes.setdefault(one.node_id, []).append(one.key)
    if any(node not in client.metadata.brokers for node in homes):
        client.refresh(list(client.metadata.topics))
    return homes
