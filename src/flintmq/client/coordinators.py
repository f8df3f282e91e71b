"""The broker that looks after a group or a transactional id: where it is, and a question to it."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, TypeVar

from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import check
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

M = TypeVar("M", bound=Message)

# Later versions ask for several names at once; every broker knows this one.
_FIND_ONE: Final = 3


class CoordinatorType(IntEnum):
    """What is looked after, by its number on the wire."""

    GROUP = 0
    TRANSACTIONAL_ID = 1

    def named(self, name: str) -> str:
        return f"{self.name.lower().replace('_', ' ')} {name}"


def find_coordinator(client: ClusterClient, kind: CoordinatorType, name: str) -> int:
    """One attempt."""
    response = client.any().call(
        FindCoordinatorRequest(key=name, key_type=kind),
        FindCoordinatorResponse,
        client.request_timeout_s,
        highest=_FIND_ONE,
    )
    check(response.error_code, response.error_message, what=kind.named(name))
    if response.node_id not in client.metadata.brokers:
        client.refresh(list(client.metadata.topics))
    return response.node_id


def call_coordinator(
    client: ClusterClient,
    kind: CoordinatorType,
    name: str,
    request: Message,
    response_type: type[M],
    judge: Callable[[M], object],
    *,
    highest: int | None = None,
    repeatable: bool = True,
) -> tuple[int, M]:
    """Ask it, wherever it is by now. `judge` raises what the answer says went wrong."""

    def ask() -> tuple[int, M]:
        node = client.attempt(lambda: find_coordinator(client, kind, name))
        response = client.broker(node).call(request, response_type, client.request_timeout_s, highest=highest)
        judge(response)
        return node, response

    return client.attempt(ask, repeatable=repeatable)
