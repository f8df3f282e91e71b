"""The audit log: who did what from where, whether that was allowed, and why. No file is known here.

    {"time": …, "event": "authorization", "principal": "User:bob", "address": "10.0.0.9", "listener": "SASL_SSL",
     "api": "Produce", "operation": "WRITE", "resource_type": "TOPIC", "resource": "orders", "outcome": "denied",
     "reason": "no ACL allows it"}

Invariants: the loop never waits for the log, events per second are bounded and what is left out is counted, no value
of a setting, password or token is ever part of an event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from flintmq.effects import Clock
from flintmq.security.principal import Principal

AuditEvent = dict[str, object]

_TEXT_MAX: Final = 512
_WINDOW_S: Final = 1.0


class AuditedClient(Protocol):
    """What an event says about a client; a session is one."""

    principal: Principal
    peer_host: str
    listener: str


class AuditLog:
    def __init__(
        self,
        *,
        clock: Clock,
        write: Callable[[AuditEvent], bool],
        rate_max: int,
        logs_changes: bool = False,
        logs_allowed: bool = False,
    ) -> None:
        """`write` returns at once; False if it has no room for the event."""
        self._clock = clock
        self._write = write
        self._rate_max = rate_max
        self.logs_changes = logs_changes
        self.logs_allowed = logs_allowed
        self.written = 0
        self.left_out = 0
        self._unreported = 0
        self._window_ends = 0.0
        self._in_window = 0

    def authorization(
        self,
        client: AuditedClient,
        *,
        api: str,
        operation: str,
        resource_type: str,
        resource: str,
        allowed: bool,
        why: Callable[[], str],
    ) -> None:
        """Log a decision about a resource. `why` is called only if the event is written."""
        if not self._has_room():
            return
        event = self._event("authorization", client, api)
        event["operation"] = operation
        event["resource_type"] = resource_type
        event["resource"] = _bounded(resource)
        event["outcome"] = "allowed" if allowed else "denied"
        event["reason"] = _bounded(why())
        self._put(event)

    def authentication(
        self, client: AuditedClient, *, api: str, mechanism: str, failure: str | None = None
    ) -> None:
        """Log an authentication; `failure` says why it failed."""
        if (failure is None and not self.logs_changes) or not self._has_room():
            return
        event = self._event("authentication", client, api)
        event["mechanism"] = _bounded(mechanism)
        event["outcome"] = "allowed" if failure is None else "denied"
        if failure is not None:
            event["principal"] = None
            event["reason"] = _bounded(failure)
        self._put(event)

    def change(
        self,
        client: AuditedClient,
        *,
        api: str,
        resource_type: str,
        resource: str,
        detail: str,
        error: str | None,
    ) -> None:
        """Log an administrative change, or the error that it ended with."""
        if not self.logs_changes or not self._has_room():
            return
        event = self._event("change", client, api)
        event["resource_type"] = resource_type
        event["resource"] = _bounded(resource)
        if detail:
            event["detail"] = _bounded(detail)
        event["outcome"] = "allowed" if error is None else "failed"
        if error is not None:
            event["reason"] = error
        self._put(event)

    def tick(self) -> None:
        """Write how many events were left out, once their second is over. Called about once a second."""
        if self._unreported and self._clock.monotonic() >= self._window_ends:
            self._report()

    def _event(self, kind: str, client: AuditedClient, api: str) -> AuditEvent:
        return {
            "time": self._clock.now_ms(),
            "event": kind,
            "principal": _bounded(str(client.principal)),
            "address": client.peer_host,
            "listener": client.listener,
            "api": api,
        }

    def _has_room(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._window_ends:
            self._window_ends = now + _WINDOW_S
            self._in_window = 0
            if self._unreported:
                self._report()
        if self._in_window >= self._rate_max:
            self._leave_out()
            return False
        self._in_window += 1
        return True

    def _report(self) -> None:
        count, self._unreported = self._unreported, 0
        event: AuditEvent = {"time": self._clock.now_ms(), "event": "left_out", "count": count}
        if not self._write(event):
            self._unreported += count

    def _put(self, event: AuditEvent) -> None:
        if self._write(event):
            self.written += 1
        else:
            self._leave_out()

    def _leave_out(self) -> None:
        self.left_out += 1
        self._unreported += 1


def _bounded(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 1] + "…"
