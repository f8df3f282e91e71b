"""Calls from handlers to the coordinators of groups and of transactions: the only way there.

    handler → call → machine decides, records are appended → records are safe → response

A call needs no task. The coordinator decides in the handler's own step of the loop; if its records are safe by then,
the response is there when the handler returns, else the request is a delayed operation until the coordinator calls
back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from flintmq.broker.limits import ITEMS_PER_TURN
from flintmq.broker.request import Request
from flintmq.broker.responses import encode_response
from flintmq.coordinator.runtime.coordinator import Coordinator
from flintmq.coordinator.runtime.machine import CoordinatorMachine, Decision, Token
from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message

if TYPE_CHECKING:
    from flintmq.broker.services import Services

logger: Final = logging.getLogger(__name__)

M = TypeVar("M", bound=CoordinatorMachine)
P = TypeVar("P", bound=Message)


class CoordinatorCall(NamedTuple, Generic[M]):
    """A question to the machine that `key` (a group id, a transactional id) belongs to."""

    key: str
    decide: Callable[[M, Token], Decision]


class DelayedResponse:
    """The response of a request that coordinators decide. It is sent once, in the handler or later.

    While it is awaited it is the delayed operation of its request. `failure` builds the response for an error code.
    """

    __slots__ = ("_calls", "_failure", "_is_over", "_request")

    def __init__(self, request: Request, failure: Callable[[ErrorCode], Message]) -> None:
        self._request = request
        self._failure = failure
        self._is_over = False
        # What is still to call back, forgotten when the response is not needed any more.
        self._calls: list[tuple[Coordinator[Any], Token]] = []
        request.delayed = self

    def call(
        self,
        coordinator: Coordinator[M],
        call: CoordinatorCall[M],
        respond: Callable[[Any], object] | None = None,
        fail: Callable[[ErrorCode], object] | None = None,
    ) -> None:
        """Make a call whose result is the response, unless `respond` and `fail` take it."""
        token = coordinator.call(*call, respond=respond or self.send, fail=fail or self.fail)
        if not self._is_over:
            self._calls.append((coordinator, token))

    def send(self, message: Message) -> None:
        if self._is_over:
            return
        self._is_over = True
        request = self._request
        request.delayed = None
        try:
            response = encode_response(request, message)
        except Exception:
            if request.frame is not None:
                raise  # dispatch handles it as it does for every handler
            # Responses of others are sent in the same turn of the loop: this failure must not reach them.
            logger.exception("%s of %s could not be answered", request.api.name, request.session.peer)
            request.failed(ErrorCode.UNKNOWN_SERVER_ERROR)
            request.connection.refuse(f"{request.api.name} could not be answered")
            return
        request.respond(response)

    def fail(self, code: ErrorCode) -> None:
        self.send(self._failure(code))

    # ---- as a delayed operation

    def cancel(self) -> None:
        self._is_over = True
        self._forget_calls()

    def expire(self) -> None:
        """Respond at once because the broker stops: the client finds the coordinator again, here or elsewhere."""
        self._forget_calls()
        self.fail(ErrorCode.NOT_COORDINATOR)

    def _forget_calls(self) -> None:
        for coordinator, token in self._calls:
            coordinator.forget(token)
        self._calls.clear()


def call_coordinator(
    request: Request,
    coordinator: Coordinator[M],
    key: str,
    decide: Callable[[M, Token], Decision],
    failure: Callable[[ErrorCode], Message],
) -> None:
    """Respond with what one coordinator decides, now or later."""
    DelayedResponse(request, failure).call(coordinator, CoordinatorCall(key, decide))


def call_for_each(
    request: Request,
    services: Services,
    coordinator: Coordinator[M],
    count: int,
    part: Callable[[int], CoordinatorCall[M] | P],
    failed_part: Callable[[int, ErrorCode], P],
    join: Callable[[list[P]], Message],
) -> None:
    """Respond with `count` parts joined. Each is known already or decided by a call, some hundred in a turn."""
    response = DelayedResponse(request, lambda code: join([failed_part(at, code) for at in range(count)]))
    parts: dict[int, P] = {}

    def take(at: int, found: P) -> None:
        parts[at] = found
        if len(parts) == count:
            response.send(join([parts[at] for at in range(count)]))

    def begin(at: int) -> None:
        found = part(at)
        if isinstance(found, CoordinatorCall):
            response.call(
                coordinator,
                found,
                lambda message: take(at, message),
                lambda code: take(at, failed_part(at, code)),
            )
        else:
            take(at, found)

    def begin_from(first: int) -> None:
        after = min(first + ITEMS_PER_TURN, count)
        for at in range(first, after):
            begin(at)
        if after < count:
            services.timers.call_soon(begin_from, after)

    if count:
        begin_from(0)
    else:
        response.send(join([]))
