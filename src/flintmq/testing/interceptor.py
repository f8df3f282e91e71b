"""Between the server and the dispatcher of a broker under test: notes every request, and carries out the faults.

    server → Interceptor → Dispatcher

The dispatcher is used as it is; a request that a fault meets is handed to it through a `_Relay`, which stands
where its connection would and takes the answer. Invariants: answers leave in the order of their requests, as
the connection has it; a request that is held back keeps those behind it back too, so that faults change when
and whether something happens, never its order. Everything here runs in the broker's thread.

A fetch session's requests name only what changed. To tell an error of partitions, or to find out whether a
topic is meant, the session is answered FETCH_SESSION_ID_NOT_FOUND first: clients then name everything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from flintmq.broker.apis import BY_KEY
from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.request import ClientSession, Request, ResponseBuffer, ResponseBuffers, ResponseChannel
from flintmq.broker.responses import encode_response
from flintmq.broker.services import Services
from flintmq.effects import Timer
from flintmq.errors import ErrorCode, ProtocolError
from flintmq.protocol import messages
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import parse_request_header, response_is_flexible
from flintmq.protocol.messages import FetchRequest, FetchResponse, ProduceRequest
from flintmq.storage.segment import FileRange
from flintmq.testing.fault_plan import FailurePlan, plan_failure
from flintmq.testing.faults import Close, Delay, Drop, Fail, Fault, Faults
from flintmq.testing.request_log import RequestLog, SeenRequest
from flintmq.testing.request_topics import topics_of

_CLOSED = "a fault scripted by the test"
_ANSWER_HEADER_SIZE = 8
_Deliver = Callable[[ResponseBuffers], object]


class Interceptor:
    """A dispatcher around the broker's own."""

    def __init__(self, inner: Dispatcher, services: Services, faults: Faults, seen: RequestLog) -> None:
        self._inner = inner
        self._services = services
        self._faults = faults
        self._seen = seen
        self._stopping = False

    def stop(self) -> None:
        """The broker stops: no fault may hold it up."""
        self._stopping = True

    def dispatch(self, connection: ResponseChannel, frame: memoryview) -> Request | None:
        try:
            key, version, correlation_id, client_id, position = parse_request_header(frame, 0, len(frame))
        except ProtocolError:
            return self._inner.dispatch(connection, frame)
        api = BY_KEY.get(key)
        if api is None or not api.versions[0] <= version <= api.versions[1]:
            return self._inner.dispatch(connection, frame)
        self._seen.add(SeenRequest(api.name, version, client_id))
        candidates = self._faults.candidates(api.name, client_id)
        if not candidates or self._stopping:
            return self._inner.dispatch(connection, frame)
        request = Request(connection, api, version, correlation_id, client_id, frame, position)
        handled = self._meet(request, frame, candidates)
        # From here on an answer is announced to the connection; before, it only needs to be there.
        request.frame = None
        return handled

    def _meet(self, request: Request, frame: memoryview, candidates: list[Fault]) -> Request | None:
        try:
            message, _ = decode(
                messages.request_of(request.api.key), frame, request.version, request.body_position
            )
        except ProtocolError:
            return self._inner.dispatch(request.connection, frame)
        if _hides_its_partitions(message) and any(
            fault.topic is not None or isinstance(fault.action, Fail) for fault in candidates
        ):
            request.response = encode_response(
                request, FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            )
            return request
        image = self._services.metadata.image
        failures: dict[Fault, FailurePlan] = {}

        def has_place(fault: Fault) -> bool:
            if isinstance(fault.action, Fail):
                failure = plan_failure(message, request.version, fault, image)
                if failure is None:
                    return False
                failures[fault] = failure
            return True

        topics = topics_of(message, request.version, image)
        fault = self._faults.take(candidates, topics, has_place)
        if fault is None:
            return self._inner.dispatch(request.connection, frame)
        match fault.action:
            case Fail():
                return self._fail(request, frame, message, failures[fault], fault.when == "after")
            case Delay(seconds):
                return self._delay(request, frame, seconds, fault.when == "after")
            case Drop():
                return self._drop(request, frame, fault.when == "after")
            case Close():
                return self._close(request, frame, fault.when == "after")

    # ---- the four kinds

    def _fail(
        self, request: Request, frame: memoryview, message: Message, failure: FailurePlan, after: bool
    ) -> Request | None:
        def merge(response: ResponseBuffers) -> None:
            if is_unanswered:
                request.connection.refuse(_CLOSED)
                return
            request.respond(encode_response(request, failure.response(_decode(request, response))))

        # With acks=0 there is nothing to be told: a connection that closes is all that a client sees of an error.
        is_unanswered = isinstance(message, ProduceRequest) and message.acks == 0
        if after:
            return self._relay(request, frame, merge)
        if failure.rest is not None:
            return self._relay(request, _frame_of(frame, request, failure.rest), merge)
        if is_unanswered:
            request.connection.refuse(_CLOSED)
            return None
        request.response = encode_response(request, failure.response(None))
        return request

    def _delay(self, request: Request, frame: memoryview, seconds: float, after: bool) -> Request | None:
        if after:
            return self._relay(request, frame, lambda response: self._hold(request, response, seconds))
        kept = memoryview(bytearray(frame))

        def handle() -> None:
            request.delayed = None
            if not self._stopping:
                self._relay(request, kept, request.respond)

        request.barrier = True
        self._abandon(request)
        # Not cancelled if the client goes: a slow broker handles what it has received.
        self._services.timers.call_later(seconds, handle)
        return request

    def _hold(self, request: Request, response: ResponseBuffers, seconds: float) -> None:
        def release() -> None:
            request.delayed = None
            request.respond(response)

        if self._stopping:
            release()
        else:
            request.delayed = _Held(self._services.timers.call_later(seconds, release), release)

    def _drop(self, request: Request, frame: memoryview, after: bool) -> Request | None:
        if after:
            return self._relay(request, frame, lambda response: self._abandon(request))
        request.barrier = True
        self._abandon(request)
        return request

    @staticmethod
    def _abandon(request: Request) -> None:
        request.delayed = _Abandoned(request)

    def _close(self, request: Request, frame: memoryview, after: bool) -> Request | None:
        if after:
            return self._relay(request, frame, lambda response: request.connection.refuse(_CLOSED))
        request.connection.refuse(_CLOSED)
        return None

    def _relay(self, request: Request, frame: memoryview, deliver: _Deliver) -> Request | None:
        """Let the request take its course; its answer goes to `deliver`, now or later."""
        inner = self._inner.dispatch(_Relay(request, deliver), frame)
        if inner is None:
            return None
        if inner.response is not None:
            deliver(inner.response)
        else:
            request.delayed = inner.delayed
            request.barrier = request.barrier or inner.barrier
        return request


class _Relay:
    """A connection as the dispatcher sees it, for one request."""

    def __init__(self, request: Request, deliver: _Deliver) -> None:
        self._request = request
        self._deliver = deliver
        self.session: ClientSession = request.session

    def send_response(self, request: Request) -> None:
        assert request.response is not None
        self._request.delayed = None
        self._deliver(request.response)

    def refuse(self, reason: str) -> None:
        self._request.connection.refuse(reason)

    def authenticated(self) -> None:
        self._request.connection.authenticated()

    def throttle(self, delay_s: float) -> None:
        self._request.connection.throttle(delay_s)

    def reject(self, request: Request, response: ResponseBuffers, reason: str, delay_s: float) -> None:
        self._request.connection.reject(self._request, response, reason, delay_s)


class _Held:
    """An answer that is held back for a while. At the end of the broker it is not."""

    def __init__(self, timer: Timer, release: Callable[[], object]) -> None:
        self._timer = timer
        self._release = release

    def cancel(self) -> None:
        self._timer.cancel()

    def expire(self) -> None:
        self._timer.cancel()
        self._release()


class _Abandoned:
    """A request that nobody answers, or not yet. At the end of the broker it is let go without an answer."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def cancel(self) -> None:
        """Nothing waits."""

    def expire(self) -> None:
        self._request.respond([])


def _hides_its_partitions(message: Message) -> bool:
    return isinstance(message, FetchRequest) and message.session_epoch > 0


def _frame_of(frame: memoryview, request: Request, message: Message) -> memoryview:
    """The same request with another body."""
    return memoryview(bytearray(frame[: request.body_position]) + encode(message, request.version))


def _decode(request: Request, response: ResponseBuffers) -> Message | None:
    """What the dispatcher answered, or None if it had nothing to say."""
    if not response:
        return None
    data = b"".join(_bytes(buffer) for buffer in response)
    (size,) = struct.unpack_from(">i", data)
    assert size == len(data) - 4
    key = request.api.key
    position = _ANSWER_HEADER_SIZE + response_is_flexible(key, request.version)
    return decode(messages.response_of(key), data, request.version, position)[0]


def _bytes(buffer: ResponseBuffer) -> bytes:
    return buffer.read() if isinstance(buffer, FileRange) else bytes(buffer)
