"""Calls to the coordinator of a group or of a transactional id, wherever it is.

The coordinator is found by FindCoordinator and looked for again after each failed attempt. Invariant: a call returns
when a coordinator has responded without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

from flintmq.client.retries import RETRIABLE
from flintmq.cluster.peers import PeerUnreachable
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from flintmq.testing.simulation.client import WorldClient

R = TypeVar("R", bound=Message)

_FIND_COORDINATOR = 4
_MAY_PASS = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


def _own_code(response: Any) -> int:
    code: int = response.error_code
    return code


class CoordinatorClient:
    def __init__(self, client: WorldClient, key: str, key_type: KeyType) -> None:
        self.client = client
        self._key = key
        self._key_type = key_type
        self._node: int | None = None
        self.may_have_happened = False
        """Whether an attempt of the last call may have been carried out, though it did not succeed."""

    async def call(
        self,
        request: Message,
        response_type: type[R],
        version: int,
        *,
        code_of: Callable[[R], int] = _own_code,
    ) -> R:
        """Call until the coordinator responds.

        RequestError if the error does not pass, OutcomeUnknown once the patience of the client is over.
        """
        client = self.client
        deadline_s = client.now_s() + client.patience_s
        self.may_have_happened = False
        while True:
            try:
                if self._node is None:
                    self._node = await self._find()
                if self._node is not None:
                    response = await client.call(self._node, request, response_type, version)
                    code = code_of(response)
                    if not code:
                        return response
                    if code not in _MAY_PASS:
                        raise RequestError(ErrorCode(code), type(request).__name__)
                    self.may_have_happened = True
            except PeerUnreachable:
                self.may_have_happened = True
            self._node = None
            await client.pause(deadline_s)

    async def _find(self) -> int | None:
        request = FindCoordinatorRequest(key_type=int(self._key_type), coordinator_keys=[self._key])
        response = await self.client.call_any(request, FindCoordinatorResponse, _FIND_COORDINATOR)
        found = response.coordinators[0]
        return None if found.error_code else found.node_id
