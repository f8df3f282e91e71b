"""An error as the answer to any request, with its code where clients look for it. Pure.

Kafka answers for every partition where a request names partitions (Produce), for every topic, group or
resource where it names those (CreateTopics), else once for the whole. The shape of the answer is read from
the schemas: whatever the request names is named again in the answer, at the first level that has a place for a
code. Fetch is told for each partition though its answer has a code of its own, since that one is about the
session. Invariant: what is built can be encoded in the version asked for.
This module must not know connections, nor what a code means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flintmq.errors import ErrorCode
from flintmq.protocol import messages
from flintmq.protocol.codegen.schema import Field, MessageSchema
from flintmq.protocol.codegen.structures import Message, Struct

CODES: Final = ("error_code", "partition_error_code")
_MESSAGE: Final = "error_message"

# By which names a request and its answer call the same thing.
_IDENTITIES: Final[tuple[tuple[str, ...], ...]] = (
    ("name", "topic", "topic_name"),
    ("partition_index", "partition", "index", "partition_id"),
    ("topic_id",),
    ("group_id",),
    ("transactional_id",),
    ("key",),
    ("resource_type",),
    ("resource_name",),
)
_ALIASES: Final = {name: names for names in _IDENTITIES for name in names}

# What Kafka says beside an error where the schema's default would read as a fact.
_UNKNOWN: Final[dict[str, Any]] = {
    "base_offset": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "committed_offset": -1,
    "committed_leader_epoch": -1,
    "node_id": -1,
    "port": -1,
    "records": b"",
}

_FIRST_LOG_DIRS_CODE: Final = 3
_PER_PARTITION: Final = frozenset(("FetchRequest", "ShareFetchRequest", "ShareAcknowledgeRequest"))
_SESSION_CODES: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)


def error_response(
    request: Message, version: int, code: ErrorCode, text: str, *, per_topic: bool = False
) -> Message | None:
    """The answer, or None if the request names nothing that an error could be told of.

    With `per_topic` the code stands with what is named, even if the answer has a place for it above.
    """
    response = messages.response_of(request.api_key)()
    inward = per_topic or request.schema.name in _PER_PARTITION
    if code in _SESSION_CODES:
        inward = False
    placed = _Filling(response.schema, version, code, text, inward=inward).fill(
        response, response.schema.name, _Source(request, request.schema, request.schema.name, version)
    )
    return response if placed else None


class _Source:
    """A part of the request: a struct, or a bare value out of a list of names or numbers."""

    def __init__(self, value: Any, schema: MessageSchema, struct: str, version: int) -> None:
        self.value = value
        self._schema = schema
        self._struct = struct
        self._version = version

    @property
    def is_bare(self) -> bool:
        return not self._struct

    def get(self, name: str) -> Any:
        """The value under this or an equivalent name, or None."""
        for alias in _ALIASES[name]:
            if hasattr(self.value, alias):
                return getattr(self.value, alias)
        return None

    def named(self, like: str) -> Sequence[_Source]:
        """What it lists: the list of that name, else its first."""
        if self.is_bare:
            return ()
        if self._schema.name == "AlterReplicaLogDirsRequest" and self._struct == self._schema.name:
            # The one request that names topics below something that its answer leaves out.
            return [topic for each in self._list_of("dirs") for topic in each.named("topics")]
        lists = [
            field.name
            for field in self._schema.structs[self._struct]
            if field.array and field.present(self._version)
        ]
        if not lists:
            return ()
        return self._list_of(like if like in lists else lists[0])

    def _list_of(self, name: str) -> Sequence[_Source]:
        (field,) = (field for field in self._schema.structs[self._struct] if field.name == name)
        values = getattr(self.value, name) or ()
        return [_Source(value, self._schema, field.struct, self._version) for value in values]


class _Filling:
    def __init__(
        self, schema: MessageSchema, version: int, code: ErrorCode, text: str, *, inward: bool
    ) -> None:
        self._schema = schema
        self._version = version
        self._code = code
        self._text = text
        self._inward = inward

    def fill(self, target: Struct, struct: str, source: _Source) -> bool:
        """Write the error into `target` or what it lists; whether there was a place for it."""
        fields = [field for field in self._schema.structs[struct] if field.present(self._version)]
        own = next((field.name for field in fields if field.name in CODES), None)
        placed = False
        if own is None or self._inward:
            placed = self._fill_lists(target, fields, source)
        self._identify(target, fields, source)
        if own is None or placed:
            return placed
        setattr(target, own, self._code)
        for field in fields:
            if field.name == _MESSAGE:
                target.error_message = self._text  # type: ignore[attr-defined]
            elif field.name in _UNKNOWN:
                setattr(target, field.name, _UNKNOWN[field.name])
        return True

    def _fill_lists(self, target: Struct, fields: Sequence[Field], source: _Source) -> bool:
        if self._schema.name == "DescribeLogDirsResponse":
            return self._fill_folder(target)
        placed = False
        for field in fields:
            if field.array and field.struct and self._has_place(field.struct):
                elements = getattr(target, field.name)
                for one in source.named(field.name):
                    element: Struct = getattr(messages.load(self._schema.name), field.struct)()
                    if self.fill(element, field.struct, one):
                        elements.append(element)
                placed = placed or bool(elements)
        return placed

    def _fill_folder(self, target: Any) -> bool:
        """Before version 3 the code stands with a folder, which the request does not name."""
        if self._version >= _FIRST_LOG_DIRS_CODE:
            return False
        target.results.append(messages.DescribeLogDirsResponse.DescribeLogDirsResult(error_code=self._code))
        return True

    def _identify(self, target: Struct, fields: Sequence[Field], source: _Source) -> None:
        for field in fields:
            if field.array or field.struct or field.name in (*CODES, _MESSAGE):
                continue
            if source.is_bare:
                # Of a bare value there is one, and the answer gives it back first.
                setattr(target, field.name, source.value)
                return
            if field.name in _ALIASES and (value := source.get(field.name)) is not None:
                setattr(target, field.name, value)

    def _has_place(self, struct: str) -> bool:
        fields = [field for field in self._schema.structs[struct] if field.present(self._version)]
        return any(
            field.name in CODES or (field.array and field.struct and self._has_place(field.struct))
            for field in fields
        )
