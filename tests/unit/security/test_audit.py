"""Events of the audit log (S11): what they hold, and their bound per second."""

from __future__ import annotations

from collections.abc import Callable

from flintmq.broker.request import ClientSession
from flintmq.security.audit import AuditEvent, AuditLog
from flintmq.security.principal import Principal


class SteppedClock:
    def __init__(self) -> None:
        self.s = 100.0

    def now_ms(self) -> int:
        return int(self.s * 1000)

    def monotonic(self) -> float:
        return self.s


def into(events: list[AuditEvent]) -> Callable[[AuditEvent], bool]:
    def write(event: AuditEvent) -> bool:
        events.append(event)
        return True

    return write


def client() -> ClientSession:
    session = ClientSession(listener="SASL_SSL", peer="10.0.0.9", local_host="", local_port=0)
    session.principal = Principal("User", "bob")
    return session


def decision(log: AuditLog, name: str = "orders", *, allowed: bool = False) -> None:
    log.authorization(
        client(),
        api="Produce",
        operation="WRITE",
        resource_type="TOPIC",
        resource=name,
        allowed=allowed,
        why=lambda: "no ACL allows it",
    )


def test_a_denial_says_all_there_is_to_say() -> None:
    events: list[AuditEvent] = []
    decision(AuditLog(clock=SteppedClock(), write=into(events), rate_max=10))
    assert events == [
        {
            "time": 100_000,
            "event": "authorization",
            "principal": "User:bob",
            "address": "10.0.0.9",
            "listener": "SASL_SSL",
            "api": "Produce",
            "operation": "WRITE",
            "resource_type": "TOPIC",
            "resource": "orders",
            "outcome": "denied",
            "reason": "no ACL allows it",
        }
    ]


def test_successful_authentications_and_changes_are_left_to_those_who_want_them() -> None:
    events: list[AuditEvent] = []
    for logs_changes in (False, True):
        log = AuditLog(
            clock=SteppedClock(),
            write=into(events),
            rate_max=10,
            logs_changes=logs_changes,
        )
        log.authentication(client(), api="SaslAuthenticate", mechanism="PLAIN")
        log.change(client(), api="CreateAcls", resource_type="TOPIC", resource="t", detail="d", error=None)
        log.authentication(client(), api="SaslAuthenticate", mechanism="PLAIN", failure="invalid password")
    assert [event["event"] for event in events] == [
        "authentication",
        "authentication",
        "change",
        "authentication",
    ]
    assert [(event["outcome"], event["principal"]) for event in events] == [
        ("denied", None),
        ("allowed", "User:bob"),
        ("allowed", "User:bob"),
        ("denied", None),
    ]


def test_events_beyond_the_rate_are_counted() -> None:
    events: list[AuditEvent] = []
    asked: list[str] = []
    clock = SteppedClock()
    log = AuditLog(clock=clock, write=into(events), rate_max=3)
    for _ in range(10):
        log.authorization(
            client(),
            api="Fetch",
            operation="READ",
            resource_type="TOPIC",
            resource="t",
            allowed=False,
            why=lambda: asked.append("why") or "no",  # type: ignore[func-returns-value]
        )
    assert len(events) == len(asked) == 3
    log.tick()
    assert len(events) == 3
    clock.s += 1
    log.tick()
    assert events[3:] == [{"time": 101_000, "event": "left_out", "count": 7}]
    log.tick()
    decision(log)
    assert [event["event"] for event in events[4:]] == ["authorization"]
    assert (log.written, log.left_out) == (4, 7)


def test_a_full_queue_is_counted_and_reported_when_there_is_room() -> None:
    events: list[AuditEvent] = []
    room = 0
    clock = SteppedClock()
    log = AuditLog(clock=clock, write=lambda event: room > 0 and into(events)(event), rate_max=100)
    decision(log)
    decision(log)
    clock.s += 2
    log.tick()
    room = 1
    log.tick()
    assert events == [{"time": 102_000, "event": "left_out", "count": 2}]


def test_names_of_clients_are_bounded() -> None:
    events: list[AuditEvent] = []
    log = AuditLog(clock=SteppedClock(), write=into(events), rate_max=10)
    decision(log, "x" * 30_000)
    assert len(str(events[0]["resource"])) == 512
