"""Questions to the coordinator of groups, from handlers. What comes back is the answer, or part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from flintmq.broker.delayed_response import DelayedResponse
from flintmq.broker.request import Request
from flintmq.coordinator.groups.machine import GroupMachine
from flintmq.coordinator.groups.membership import Client
from flintmq.coordinator.runtime.machine import Decision, Token
from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message

if TYPE_CHECKING:
    from flintmq.broker.services import Services

P = TypeVar("P", bound=Message)


def client_of(request: Request) -> Client:
    return Client(request.client_id or "", f"/{request.session.peer_host}")


def ask_group(
    request: Request,
    services: Services,
    group_id: str,
    decide: Callable[[GroupMachine, Token], Decision],
    failure: Callable[[ErrorCode], Message],
    finish: Callable[[Message], Message] = lambda answer: answer,
) -> None:
    """The answer comes from one group, now or later; `finish` adds what the group does not know."""
    reply = DelayedResponse(request, lambda code: finish(failure(code)))
    token = services.groups.ask(
        group_id, decide, answer=lambda answer: reply.send(finish(answer)), fail=reply.fail
    )
    reply.wait(lambda: services.groups.forget(token))


def ask_groups(
    request: Request,
    services: Services,
    group_ids: Sequence[str],
    decide: Callable[[GroupMachine, Token, int], Decision],
    part_failed: Callable[[int, ErrorCode], P],
    whole: Callable[[list[P]], Message],
) -> None:
    """A part of the answer comes from each group, named by its place; `whole` puts them together."""
    reply = DelayedResponse(
        request, lambda code: whole([part_failed(at, code) for at in range(len(group_ids))])
    )
    parts: dict[int, P] = {}

    def take(at: int, part: P) -> None:
        parts[at] = part
        if len(parts) == len(group_ids):
            reply.send(whole([parts[place] for place in range(len(group_ids))]))

    tokens = [
        services.groups.ask(
            group_id,
            lambda machine, token, at=at: decide(machine, token, at),  # type: ignore[misc]
            answer=lambda message, at=at: take(at, message),  # type: ignore[misc]
            fail=lambda code, at=at: take(at, part_failed(at, code)),  # type: ignore[misc]
        )
        for at, group_id in enumerate(group_ids)
    ]
    if not group_ids:
        reply.send(whole([]))

    def forget() -> None:
        for token in tokens:
            services.groups.forget(token)

    reply.wait(forget)
