"""Writes the source of encoders: one function per message and version, straight-line where it can be.

Invariant of the generated code: if it raises, the buffer it was given is as it was before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from flintmq.protocol import primitives
from flintmq.protocol.codegen.schema import Field, MessageSchema
from flintmq.protocol.codegen.source import Source, span
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.primitives import FORMATS, SHORT_ARRAY_COUNT, UnrepresentableError
from flintmq.records.varint import append_unsigned


def build_encoder(cls: type[Message], version: int) -> Callable[..., Any]:
    return _Encoder(cls, version).build()


def differs_from_default(schema: MessageSchema, field: Field, value: str) -> str:
    """An expression that is true when `value` is not the field's default, as Kafka defines it."""
    if field.default_is_null:
        return f"{value} is not None"
    if field.array:
        return f"({value} or {value} is None)" if field.ever_null else value
    if field.struct:
        members = schema.structs[field.struct]
        parts = [differs_from_default(schema, member, f"{value}.{member.name}") for member in members]
        missing = [f"{value} is None"] if field.ever_null else []
        return "(" + " or ".join(missing + parts) + ")"
    if field.kind == "bool":
        return f"not {value}" if field.default else value
    return f"{value} != {field.default!r}"


class _Encoder:
    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._source = Source(cls.schema, version, "def encode(message, out):")
        self._out = "out"
        self._run: list[tuple[str, str, str]] = []
        """Fixed-size values not yet written, as (struct code, expression, field): merged into one pack."""

    def build(self) -> Callable[..., Any]:
        source = self._source
        source.constants.update(
            Unrepresentable=UnrepresentableError,
            faults=(struct.error, AttributeError, TypeError, ValueError, UnrepresentableError),
            append_unsigned=append_unsigned,
            write_string_size=primitives.write_string_size,
        )
        source.emit("start = len(out)")
        source.emit("try:")
        source.depth += 1
        source.emit("pass")
        self._struct(self._cls.__name__, "message")
        source.depth -= 1
        source.emit("except faults as error:")
        source.emit("    del out[start:]")
        source.emit("    raise unwritable(error) from error")
        return source.build("encode")

    def _struct(self, name: str, value: str) -> None:
        source, outer = self._source, self._source.path
        tagged = []
        for field in source.schema.structs[name]:
            source.path = f"{outer}.{field.name}" if outer else field.name
            own = f"{value}.{field.name}"
            if field.is_tagged(self._version):
                tagged.append(field)
            elif field.present(self._version):
                self._field(field, own)
            elif not field.ignorable:
                source.emit(f"if {differs_from_default(source.schema, field, own)}: raise Unrepresentable")
        if tagged:
            source.path = outer
            self._tags(tagged, value)
        elif source.flexible:
            self._fixed("x", "")
        self._flush()
        source.path = outer

    def _tags(self, fields: list[Field], value: str) -> None:
        source, outer = self._source, self._source.path
        ordered = sorted(fields, key=lambda field: field.tag)
        flags = []
        for field in ordered:
            source.path = f"{outer}.{field.name}" if outer else field.name
            flags.append(source.local("set"))
            condition = differs_from_default(source.schema, field, f"{value}.{field.name}")
            source.emit(f"{flags[-1]} = 1 if {condition} else 0")
        self._fixed("B", " + ".join(flags))
        self._flush()
        for field, flag in zip(ordered, flags, strict=True):
            source.path = f"{outer}.{field.name}" if outer else field.name
            source.emit(f"if {flag}:")
            source.depth += 1
            self._tagged(field, f"{value}.{field.name}")
            source.depth -= 1
        source.path = outer

    def _tagged(self, field: Field, value: str) -> None:
        source = self._source
        outer_out, self._out = self._out, source.local("body")
        source.emit(f"{self._out} = bytearray()")
        self._field(field, value)
        self._flush()
        body, self._out = self._out, outer_out
        source.emit(f"append_unsigned({self._out}, {field.tag})")
        source.emit(f"append_unsigned({self._out}, len({body}))")
        source.emit(f"{self._out} += {body}")

    def _field(self, field: Field, value: str) -> None:
        nullable = field.may_be_null(self._version)
        if field.array:
            self._array(field, value, nullable=nullable)
        elif field.struct:
            self._struct_field(field, value, nullable=nullable)
        else:
            self._primitive(field, value, nullable=nullable)

    def _struct_field(self, field: Field, value: str, *, nullable: bool) -> None:
        source = self._source
        own = source.local("s")
        source.emit(f"{own} = {value}")
        if nullable:
            self._flush()
            source.emit(f"if {own} is None:")
            source.emit(f"    {self._out}.append(255)")
            source.emit("else:")
            source.depth += 1
            self._fixed("B", "1")
        self._struct(field.struct, own)
        source.depth -= nullable

    def _array(self, field: Field, value: str, *, nullable: bool) -> None:
        source = self._source
        values, count = source.local("list"), source.local("n")
        source.emit(f"{values} = {value}")
        self._length(field, values, count, "i", "append_unsigned", nullable=nullable)
        if nullable:
            source.emit(f"if {values}:")
            source.depth += 1
        if field.kind == "uuid":
            source.constants["pack_uuids"] = primitives.pack_uuids
            source.emit(f"{self._out} += pack_uuids({values})")
        elif field.kind in FORMATS:
            short, long = primitives.array_packers(field.kind)
            short_name = source.constant(f"short_{field.kind}", short)
            long_name = source.constant(f"long_{field.kind}", long)
            source.emit(
                f"{self._out} += {short_name}[{count}](*{values}) if {count} < {SHORT_ARRAY_COUNT} "
                f"else {long_name}({values})"
            )
        else:
            element = source.local("s")
            source.emit(f"for {element} in {values}:")
            source.depth += 1
            if field.struct:
                source.emit("pass")
                self._struct(field.struct, element)
            else:
                self._primitive(field, element, nullable=False)
                self._flush()
            source.depth -= 1
        source.depth -= nullable

    def _primitive(self, field: Field, value: str, *, nullable: bool) -> None:
        source = self._source
        if field.kind in FORMATS:
            if field.kind == "uuid":
                source.emit(f"if len({value}) != 16: raise ValueError('a uuid has 16 bytes')")
            self._fixed("B" if field.kind == "bool" else FORMATS[field.kind], value)
            return
        data, size = source.local("b"), source.local("n")
        source.emit(f"{data} = {value}")
        if field.kind == "string":
            source.emit(
                f"if {data} is not None: {data} = {data}.encode()"
                if nullable
                else f"{data} = {data}.encode()"
            )
            self._length(field, data, size, "h", "write_string_size", nullable=nullable)
        else:
            self._length(field, data, size, "i", "append_unsigned", nullable=nullable)
        source.emit(f"if {data}: {self._out} += {data}" if nullable else f"{self._out} += {data}")

    def _length(self, field: Field, value: str, name: str, code: str, long: str, *, nullable: bool) -> None:
        """Writes the length of `value`, and leaves in `name` the length (0 for null)."""
        source = self._source
        if not source.compact(field):
            source.emit(
                f"{name} = len({value}) if {value} is not None else -1"
                if nullable
                else f"{name} = len({value})"
            )
            self._fixed(code, name)
            self._flush()
            return
        self._flush()
        source.emit(
            f"{name} = len({value}) if {value} is not None else -1" if nullable else f"{name} = len({value})"
        )
        source.emit(f"if {name} < 127: {self._out}.append({name} + 1)")
        source.emit(f"else: {long}({self._out}, {name} + 1)")

    def _fixed(self, code: str, value: str) -> None:
        self._run.append((code, value, self._source.path))

    def _flush(self) -> None:
        """Emits one pack for all fixed-size values waiting; "x" is a zero byte that needs no value."""
        run, self._run = self._run, []
        if not run:
            return
        path = span([path for _, _, path in run])
        codes = "".join(code for code, _, _ in run)
        if codes == "x":
            self._source.emit(f"{self._out}.append(0)", path)
        elif codes == "B":
            self._source.emit(f"{self._out}.append({run[0][1]})", path)
        else:
            pack = self._source.constant(f"pack_{codes}", struct.Struct(">" + codes).pack)
            values = ", ".join(value for code, value, _ in run if code != "x")
            self._source.emit(f"{self._out} += {pack}({values})", path)
