"""From a frame to its handler, and from what the handler says to bytes.

    socket → frame → parse header → find the API and version → decode → handler → encode → answer

A client's mistake is answered; bytes that make no sense close that connection; anything unforeseen is a bug,
logged with its traceback and answered UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, Final

from flintmq.broker.apis import APIS, Api, served
from flintmq.broker.audited_changes import audited
from flintmq.broker.authentication import admit, take_bare_token
from flintmq.broker.request import Request, ResponseChannel
from flintmq.broker.responses import encode_response, reason_of
from flintmq.broker.services import Services
from flintmq.broker.throttling import charge_time, forget_limits, limits_of
from flintmq.errors import ErrorCode, ProtocolError, UnsupportedVersion, error_code_of
from flintmq.metrics import ApiCounters
from flintmq.protocol import messages
from flintmq.protocol.codec import decoder
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import API_VERSIONS_KEY, parse_request_header
from flintmq.security.authentication.exchange import SASL_AUTHENTICATE

logger: Final = logging.getLogger(__name__)

DRAIN_S: Final = 5.0
# The length before each frame is received too.
_PREFIX: Final = 4


class _ServedApi:
    """What every request needs of its API, at hand."""

    __slots__ = ("api", "counters", "has_quotas", "highest", "lowest", "raw")

    def __init__(self, api: Api, counters: ApiCounters) -> None:
        self.api = api
        self.counters = counters
        self.lowest, self.highest = api.versions
        self.raw = api.raw
        self.has_quotas = api.has_quotas


class Dispatcher:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._now = now = services.clock.monotonic
        self._limited_clients = services.limited_clients
        counters = services.counters.apis
        audit = services.audit
        self._served = {
            api.key: _ServedApi(
                api if audit is None else audited(api, audit),
                counters.setdefault(api.name, ApiCounters(now)),
            )
            for api in served(APIS, services.configs.broker)
        }
        self._tasks: set[asyncio.Task[None]] = set()

    def dispatch(self, connection: ResponseChannel, frame: memoryview) -> Request | None:
        """One frame of a connection. None if the connection was refused."""
        began = self._now()
        size = len(frame)
        served = None
        session = connection.session
        try:
            if not session.is_authenticated and session.sasl is not None and session.sasl.expects_bare_token:
                return self._dispatch_token(connection, frame, began)
            key, version, correlation_id, client_id, position = parse_request_header(frame, 0, size)
            served = self._served.get(key)
            if served is None:
                raise ProtocolError(f"API {key} is not served")
            api, counters = served.api, served.counters
            counters.requests += 1
            counters.bytes_in += size + _PREFIX
            request = Request(
                connection, api, version, correlation_id, client_id, frame, position, counters, began
            )
            is_limited = not session.is_authenticated or session.expires_at is not None
            if is_limited and not admit(request, self._services):
                request.frame = None
                return request
            clients = self._limited_clients
            if clients.is_active and session.is_authenticated and served.has_quotas:
                request.limits = limits_of(session, client_id, clients)
            elif session.limits is not None:
                forget_limits(session)
            if not served.lowest <= version <= served.highest:
                self._refuse_version(request)
            elif served.raw is not None:
                later = served.raw(request, self._services)
                if later is not None:
                    self._own(self._finish_raw(request, later))
            else:
                self._handle(request, api)
        except ProtocolError as error:
            connection.refuse(str(error))
            return None
        except Exception:
            logger.exception("a request of %s failed", connection.session.peer)
            if served is not None:
                served.counters.errors[ErrorCode.UNKNOWN_SERVER_ERROR] += 1
            connection.refuse("a request could not be handled")
            return None
        request.frame = None
        if request.limits is not None and request.response is None:
            charge_time(request, request.limits)
        return request

    def _dispatch_token(self, connection: ResponseChannel, frame: memoryview, began: float) -> Request:
        """Take a frame that is a SASL token and nothing else, as it follows a SaslHandshake of version 0."""
        served = self._served[SASL_AUTHENTICATE]
        served.counters.requests += 1
        served.counters.bytes_in += len(frame) + _PREFIX
        request = Request(connection, served.api, 0, 0, None, frame, 0, served.counters, began)
        take_bare_token(request, bytes(frame), self._services)
        request.frame = None
        return request

    async def drain(self, grace_s: float = DRAIN_S) -> None:
        """Wait for the handlers that are at work, but not for ever."""
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks), timeout=grace_s)
            for task in late:
                task.cancel()

    # ---- handlers of decoded messages

    def _handle(self, request: Request, api: Api) -> None:
        assert request.frame is not None
        assert api.handler is not None
        message, _ = decoder(messages.request_of(api.key), request.version)(
            request.frame, request.body_position
        )
        try:
            outcome = api.handler(request, message, self._services)
        except Exception as error:
            self._respond_error(request, error)
            return
        if isinstance(outcome, Message):
            request.response = encode_response(request, outcome)
        elif outcome is not None:
            self._own(self._finish(request, outcome))

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that runs to its end even if the client goes: half a change would be worse than none.

        The requests in flight of the connections bound their number.
        """
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish_raw(self, request: Request, later: Awaitable[None]) -> None:
        try:
            await later
        except Exception:
            logger.exception("%s of %s failed", request.api.name, request.session.peer)
            request.failed(ErrorCode.UNKNOWN_SERVER_ERROR)
            request.connection.refuse(f"{request.api.name} could not be handled")

    async def _finish(self, request: Request, outcome: Awaitable[Message]) -> None:
        try:
            try:
                response = await outcome
            except Exception as error:
                self._respond_error(request, error)
            else:
                request.respond(encode_response(request, response))
        except Exception:
            logger.exception("%s of %s could not be answered", request.api.name, request.session.peer)
            request.failed(ErrorCode.UNKNOWN_SERVER_ERROR)
            request.connection.refuse(f"{request.api.name} could not be answered")

    def _respond_error(self, request: Request, error: Exception) -> None:
        """Respond with the error of the whole request if the response has a field for it, else close."""
        code = error_code_of(error)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            logger.error("%s of %s failed", request.api.name, request.session.peer, exc_info=error)
        response_class = messages.response_of(request.api.key)
        response = response_class()
        request.failed(code)
        if not hasattr(response, "error_code"):
            request.connection.refuse(f"{request.api.name} failed: {error}")
            return
        response.error_code = code
        if hasattr(response, "error_message"):
            response.error_message = reason_of(error)
        request.respond(encode_response(request, response))

    def _refuse_version(self, request: Request) -> None:
        """ApiVersions in a version too new is answered in version 0, so that the client can choose (KIP-511)."""
        if request.api.key != API_VERSIONS_KEY:
            lowest, highest = request.api.versions
            request.failed(ErrorCode.UNSUPPORTED_VERSION)
            raise UnsupportedVersion(
                f"{request.api.name} is served in versions {lowest} to {highest}, not {request.version}"
            )
        request.version = 0
        assert request.api.handler is not None
        response = request.api.handler(request, None, self._services)
        assert isinstance(response, Message)
        request.response = encode_response(request, response)
