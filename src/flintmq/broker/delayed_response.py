"""The answer of a request that a coordinator decides: it may come while the handler runs, or long after."""

from __future__ import annotations

from collections.abc import Callable

from flintmq.broker.error_codes import error_codes_in
from flintmq.broker.request import Request
from flintmq.broker.responses import encode_response
from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message


class DelayedResponse:
    """Sent once. While it is awaited the request is a poll: it ends with its connection, and with the broker.

    `failure` makes the answer for a code, where the coordinator cannot decide; `forget` is called when nobody takes
    the answer any more.
    """

    def __init__(self, request: Request, failure: Callable[[ErrorCode], Message]) -> None:
        self._request = request
        self._failure = failure
        self._is_sent = False
        self._in_handler = True
        self._forget: Callable[[], object] = lambda: None

    def send(self, message: Message) -> None:
        if self._is_sent:
            return
        self._is_sent = True
        request = self._request
        request.poll = None
        for code in error_codes_in(message):
            request.failed(code)
        pieces = encode_response(request, message)
        if self._in_handler:
            request.pieces = pieces
        else:
            request.answer(pieces)

    def fail(self, code: ErrorCode) -> None:
        self.send(self._failure(code))

    def wait(self, forget: Callable[[], object]) -> None:
        """The handler returns: what is not answered by now is answered later."""
        self._in_handler = False
        if not self._is_sent:
            self._forget = forget
            self._request.poll = self

    # ---- as a poll

    def cancel(self) -> None:
        self._is_sent = True
        self._forget()

    def expire(self) -> None:
        """The broker stops: the client finds the coordinator again, here or elsewhere."""
        self._forget()
        self.fail(ErrorCode.NOT_COORDINATOR)
