"""Every message by name, Kafka's and our own: `from flintmq.protocol.messages import MetadataRequest`.

Classes are built from the definitions when first named. Type checkers read `messages.pyi`, which
`scripts/make_definitions.py` writes together with the definitions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from flintmq.protocol.codegen.schema import definitions
from flintmq.protocol.codegen.structures import Message, build


def names(kind: str | None = None) -> list[str]:
    """The names of all messages, or of those of one kind."""
    return definitions().names(kind)


def load(name: str) -> type[Message]:
    """The class of that name; KeyError if there is none."""
    known = globals().get(name)
    if isinstance(known, type) and issubclass(known, Message) and known is not Message:
        return known
    built = build(definitions().parse(name), __name__)
    globals()[name] = built
    return built


@cache
def request_of(api_key: int) -> type[Message]:
    """The request with that key; KeyError if there is none."""
    return load(definitions().name_of("request", api_key))


@cache
def response_of(api_key: int) -> type[Message]:
    """The response to the request with that key; KeyError if there is none."""
    return load(definitions().name_of("response", api_key))


def __getattr__(name: str) -> Any:
    try:
        return load(name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*globals(), *names()])
