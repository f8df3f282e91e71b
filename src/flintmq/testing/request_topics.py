"""Which topics a request is about, and the part of it that is about one of them. Pure.

Requests name topics in lists, by name or by id, some of them below groups or folders. A request can be taken
apart only where its topics stand side by side at the top; elsewhere it is about all of its topics at once.
This module must not know what is done with the parts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from flintmq.metadata.image import ClusterImage
from flintmq.protocol.codegen.schema import Field, MessageSchema
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import MetadataRequest

_TOPIC_LISTS: Final = frozenset(
    ("topics", "topic_data", "topic_names", "topic_partitions", "resources", "v3_and_below_topics")
)
_TOPIC_RESOURCE: Final = 2
_NO_ID: Final = bytes(16)


def topics_of(message: Message, version: int, image: ClusterImage) -> set[str]:
    """Every topic that the request is about."""
    if isinstance(message, MetadataRequest) and is_about_all(message, version):
        return set(image.topics)
    return {
        name
        for element in _named(message, message.schema, message.schema.name, version)
        if (name := name_of(element, image)) is not None
    }


def is_about_all(message: MetadataRequest, version: int) -> bool:
    """Whether it names no topics and means all of them."""
    return message.topics is None or (version == 0 and not message.topics)


def name_of(element: Any, image: ClusterImage) -> str | None:
    """The topic that an entry of a request or an answer is about, or None if it is about something else."""
    if isinstance(element, str):
        return element
    if hasattr(element, "resource_type"):
        return str(element.resource_name) if element.resource_type == _TOPIC_RESOURCE else None
    topic_id = getattr(element, "topic_id", _NO_ID)
    if topic_id != _NO_ID:
        topic = image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name
    for attribute in ("topic", "topic_name", "name"):
        if hasattr(element, attribute):
            name: str | None = getattr(element, attribute)
            return name
    return None


def split(message: Message, version: int, topic: str, image: ClusterImage) -> tuple[Message, Message | None]:
    """The part about `topic`, and the rest if there is one. The message itself stays as it is."""
    field = _top_list(message, version)
    if field is None:
        return message, None
    elements = getattr(message, field.name) or []
    mine = [element for element in elements if name_of(element, image) == topic]
    others = [element for element in elements if name_of(element, image) != topic]
    if not others:
        return message, None
    return _with(message, field, mine), _with(message, field, others)


def _with(message: Message, field: Field, elements: list[Any]) -> Message:
    copied = copy.copy(message)
    setattr(copied, field.name, elements)
    return copied


def _top_list(message: Message, version: int) -> Field | None:
    for field in message.schema.structs[message.schema.name]:
        if field.name in _TOPIC_LISTS and field.array and field.present(version):
            return field
    return None


def _named(value: Any, schema: MessageSchema, struct: str, version: int) -> Iterator[Any]:
    for field in schema.structs[struct]:
        if not field.array or not field.present(version):
            continue
        elements = getattr(value, field.name) or ()
        if field.name in _TOPIC_LISTS:
            yield from elements
        elif field.struct:
            for element in elements:
                yield from _named(element, schema, field.struct, version)
