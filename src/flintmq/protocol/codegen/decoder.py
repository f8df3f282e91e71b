"""Writes the source of decoders: one function per message and version, straight-line where it can be.

Invariants of the generated code: nothing is allocated for a count before it is known that the bytes left
could hold that many elements, so memory is bounded by the bytes received; and a request has no more elements
in all than REQUEST_ENTRIES_MAX, so that the time is bounded too, however small its elements are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from flintmq.protocol import primitives
from flintmq.protocol.codegen.schema import Field
from flintmq.protocol.codegen.source import Source, minimal_element_size, span
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.primitives import FORMATS, SHORT_ARRAY_COUNT, MalformedError
from flintmq.records.varint import read_unsigned_rest

_OWN_SIZES = {code: struct.calcsize(">" + code) for code in (*FORMATS.values(), "B")}


def build_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    return _Decoder(cls, version).build()


class _Decoder:
    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._source = Source(cls.schema, version, "def decode(buffer, position):")
        self._counts = cls.kind == "request"
        """Responses come from a broker that we chose to ask."""
        self._run: list[tuple[str, str, str]] = []
        """Fixed-size values not yet read, as (struct code, target, field): merged into one unpack."""

    def build(self) -> Callable[..., Any]:
        source = self._source
        source.constants.update(
            new=object.__new__,
            Malformed=MalformedError,
            faults=(struct.error, IndexError, OverflowError, UnicodeDecodeError, MalformedError),
            read_unsigned_rest=read_unsigned_rest,
            string_size_rest=primitives.string_size_rest,
            skip_tags=primitives.skip_tags,
        )
        source.emit("try:")
        source.depth += 1
        source.emit("end = len(buffer)")
        if self._counts:
            source.emit("entries = 0")
        if any(field.kind == "records" for fields in self._cls.schema.structs.values() for field in fields):
            source.emit("view = memoryview(buffer)")
        source.emit(f"message = new({source.constant(self._cls.__name__, self._cls)})")
        self._struct(self._cls.__name__, "message")
        source.emit("return message, position")
        source.depth -= 1
        source.emit("except faults as error:")
        source.emit("    raise malformed(error) from error")
        return source.build("decode")

    def _struct(self, name: str, target: str) -> None:
        """Reads the fields of a struct into the object `target` names."""
        source, outer = self._source, self._source.path
        tagged = []
        for field in source.schema.structs[name]:
            source.path = f"{outer}.{field.name}" if outer else field.name
            if not field.present(self._version):
                self._default(field, f"{target}.{field.name}")
            elif field.is_tagged(self._version):
                self._default(field, f"{target}.{field.name}")
                tagged.append(field)
            else:
                self._field(field, f"{target}.{field.name}")
        source.path = f"{outer}.(tags)" if outer else "(tags)"
        if source.flexible:
            count = source.local("n")
            self._fixed("B", count)
            self._flush()
            source.emit(f"if {count}:")
            source.depth += 1
            if tagged:
                source.path = outer
                self._tags(tagged, target, count)
            else:
                # A count of two bytes is not read yet: it stands for the most there may be.
                self._count_entries(f"({count} if {count} < 128 else {primitives.UNKNOWN_TAGS_MAX})")
                source.emit(f"position = skip_tags(buffer, position, {count}, end)")
            source.depth -= 1
        else:
            self._flush()
        source.path = outer

    def _default(self, field: Field, target: str) -> None:
        if field.default_is_null:
            value = "None"
        elif field.array:
            value = "[]"
        elif field.struct:
            value = f"{self._class_of(field)}()"
        else:
            value = repr(field.default)
        self._source.emit(f"{target} = {value}")

    def _class_of(self, field: Field) -> str:
        return self._source.constant(field.struct, getattr(self._cls, field.struct))

    def _tags(self, fields: list[Field], target: str, count: str) -> None:
        source = self._source
        outer = source.path
        tag, size, stop, previous, unknown = (
            source.local(name) for name in ("tag", "n", "stop", "last", "unknown")
        )
        self._long_varint(count)
        self._reject_if(f"{count} > (end - position) // 2", "more tagged fields than bytes")
        self._count_entries(count)
        source.emit(f"{previous} = -1; {unknown} = 0")
        source.emit(f"for _ in range({count}):")
        source.depth += 1
        for name in (tag, size):
            source.emit(f"{name} = buffer[position]; position += 1")
            self._long_varint(name)
        self._reject_if(f"{tag} <= {previous}", "tags out of order")
        self._reject_if(f"{size} > end - position", "a tagged field reaches past the end")
        source.emit(f"{previous} = {tag}; {stop} = position + {size}")
        branch = "if"
        for field in fields:
            source.path = f"{outer}.{field.name}" if outer else field.name
            source.emit(f"{branch} {tag} == {field.tag}:")
            source.depth += 1
            self._field(field, f"{target}.{field.name}")
            self._flush()
            self._reject_if(f"position != {stop}", "a tagged field of another size than it says")
            source.depth -= 1
            branch = "elif"
        source.path = outer
        source.emit("else:")
        source.depth += 1
        source.emit(f"{unknown} += 1; position = {stop}")
        self._reject_if(f"{unknown} > {primitives.UNKNOWN_TAGS_MAX}", "too many unknown tagged fields")
        source.depth -= 2

    def _field(self, field: Field, target: str) -> None:
        if field.array:
            self._array(field, target)
        elif field.struct:
            self._struct_field(field, target)
        else:
            self._primitive(field, target, nullable=field.may_be_null(self._version))

    def _struct_field(self, field: Field, target: str) -> None:
        source = self._source
        nullable = field.may_be_null(self._version)
        if nullable:
            present = source.local("n")
            self._fixed("b", present)
            self._flush()
            source.emit(f"if {present} < 0:")
            source.emit(f"    {target} = None")
            source.emit("else:")
            source.depth += 1
        value = source.local("s")
        source.emit(f"{target} = {value} = new({self._class_of(field)})")
        self._struct(field.struct, value)
        source.depth -= nullable

    def _array(self, field: Field, target: str) -> None:
        source = self._source
        count = self._length(field, "i", "read_unsigned_rest")
        self._present(field, count, target, nullable=field.may_be_null(self._version))
        least = minimal_element_size(source.schema, field, self._version)
        room = "end - position" if least <= 1 else f"(end - position) // {least}"
        self._reject_if(f"{count} > {room}", "more elements than bytes")
        self._count_entries(count)
        if field.kind == "uuid":
            span = f"range(position, position + 16 * {count}, 16)"
            source.emit(f"{target} = [bytes(buffer[at:at + 16]) for at in {span}]")
            source.emit(f"position += 16 * {count}")
        elif field.kind in FORMATS:
            short, long = primitives.array_unpackers(field.kind)
            short_name = source.constant(f"short_{field.kind}", short)
            long_name = source.constant(f"long_{field.kind}", long)
            source.emit(
                f"{target} = list({short_name}[{count}](buffer, position) if {count} < {SHORT_ARRAY_COUNT} "
                f"else {long_name}(buffer, position, {count}))"
            )
            source.emit(f"position += {least} * {count}")
        else:
            elements, element = source.local("list"), source.local("s")
            source.emit(f"{target} = {elements} = []")
            source.emit(f"for _ in range({count}):")
            source.depth += 1
            if field.struct:
                source.emit(f"{element} = new({self._class_of(field)})")
                self._struct(field.struct, element)
            else:
                self._primitive(field, element, nullable=False)
            source.emit(f"{elements}.append({element})")
            source.depth -= 1
        source.depth -= 1

    def _primitive(self, field: Field, target: str, *, nullable: bool) -> None:
        if field.kind in FORMATS:
            self._fixed(FORMATS[field.kind], target)
            return
        source = self._source
        if field.kind == "string":
            size = self._length(field, "h", "string_size_rest")
        else:
            size = self._length(field, "i", "read_unsigned_rest")
        self._present(field, size, target, nullable=nullable)
        stop = source.local("p")
        source.emit(f"{stop} = position + {size}")
        self._reject_if(f"{stop} > end", "the bytes end too early")
        if field.kind == "string":
            source.emit(f"{target} = str(buffer[position:{stop}], 'utf-8')")
        elif field.kind == "bytes":
            source.emit(f"{target} = bytes(buffer[position:{stop}])")
        else:
            source.emit(f"{target} = view[position:{stop}]")
        source.emit(f"position = {stop}")
        source.depth -= 1

    def _length(self, field: Field, code: str, rest: str) -> str:
        """Reads a length into a local name: as it is in compact form, where it is one too large."""
        length = self._source.local("n")
        if self._source.compact(field):
            self._fixed("B", length)
            self._flush()
            self._long_varint(length, rest)
        else:
            self._fixed(code, length)
            self._flush()
        return length

    def _present(self, field: Field, length: str, target: str, *, nullable: bool) -> None:
        """Deals with null and leaves the source inside the branch for values, where `length` is exact."""
        source = self._source
        compact = source.compact(field)
        if nullable:
            source.emit(f"if {length} == {0 if compact else -1}:")
            source.emit(f"    {target} = None")
        else:
            source.emit(f"if {length} {'== 0' if compact else '< 0'}:")
            source.emit("    raise Malformed('null, or a negative length')")
        if nullable and not compact:
            source.emit(f"elif {length} < 0:")
            source.emit("    raise Malformed('a negative length')")
        source.emit("else:")
        source.depth += 1
        if compact:
            source.emit(f"{length} -= 1")

    def _fixed(self, code: str, target: str) -> None:
        self._run.append((code, target, self._source.path))

    def _flush(self) -> None:
        """Emits one unpack for all fixed-size values waiting."""
        run, self._run = self._run, []
        if not run:
            return
        path = span([path for _, _, path in run])
        if len(run) == 1 and run[0][0] == "B":
            self._source.emit(f"{run[0][1]} = buffer[position]; position += 1", path)
            return
        codes = "".join(code for code, _, _ in run)
        unpack = self._source.constant(
            f"unpack_{codes.replace('?', 'z')}", struct.Struct(">" + codes).unpack_from
        )
        targets = ", ".join(target for _, target, _ in run)
        self._source.emit(f"{targets}, = {unpack}(buffer, position)", path)
        self._source.emit(f"position += {sum(_OWN_SIZES[code] for code, _, _ in run)}", path)

    def _long_varint(self, name: str, rest: str = "read_unsigned_rest") -> None:
        self._source.emit(f"if {name} > 127: {name}, position = {rest}(buffer, {name}, position)")

    def _count_entries(self, count: str) -> None:
        if self._counts:
            self._source.emit(f"entries += {count}")
            most = primitives.REQUEST_ENTRIES_MAX
            self._reject_if(f"entries > {most}", f"more than {most} entries in one request")

    def _reject_if(self, condition: str, reason: str) -> None:
        self._source.emit(f"if {condition}: raise Malformed({reason!r})")
