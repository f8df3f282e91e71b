"""The text of a `.proto` file (proto2, proto3) as a descriptor. Pure.

    file = parse(text, name="shop/order.proto")

Messages, enums, nested types, maps, oneofs and groups are taken over; options, services, extensions and comments are
passed over, as they change nothing in the bytes of a message. Names of types stay as they are written: the pool that
takes the descriptor resolves them. Invariant: what is not understood is refused with its line, never guessed.
"""

from __future__ import annotations

import re
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from flintmq.arrow.formats.decoder import SchemaError

_F: Final = FieldDescriptorProto
_SCALARS: Final = {
    name: _F.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "bool", "string", "bytes"),
        *("int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64"),
    )
}
_LABELS: Final = {
    "optional": _F.LABEL_OPTIONAL,
    "required": _F.LABEL_REQUIRED,
    "repeated": _F.LABEL_REPEATED,
}
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[fF]?)
    |(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<symbol>[{}()\[\]<>=;:,/+-])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_CLOSING: Final = {"{": "}", "(": ")", "[": "]", "<": ">"}
_DEPTH_MAX: Final = 64


def parse(text: str, *, name: str) -> FileDescriptorProto:
    """SchemaError if it is not understood."""
    return _Parser(text, name).file()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._tokens = self._split()
        self._at = 0
        self._depth = 0
        self._is_proto3 = False

    # ---- what a file holds

    def file(self) -> FileDescriptorProto:
        file = FileDescriptorProto(name=self._name)
        while self._token:
            word = self._take()
            if word == "syntax":
                self._expect("=")
                file.syntax = self._string()
                if file.syntax not in ("proto2", "proto3"):
                    raise self._wrong(f"the syntax {file.syntax!r} is not known")
                self._is_proto3 = file.syntax == "proto3"
                self._expect(";")
            elif word == "edition":
                raise self._wrong(
                    "editions are not read; give the descriptors that `protoc --include_imports -o FILE` makes"
                )
            elif word == "package":
                file.package = self._identifier()
                self._expect(";")
            elif word == "import":
                self._import(file)
            elif word == "message":
                self._message(file.message_type.add())
            elif word == "enum":
                self._enum(file.enum_type.add())
            elif word in ("option", "service", "extend"):
                self._pass_over()
            elif word != ";":
                raise self._unexpected(word)
        return file

    def _import(self, file: FileDescriptorProto) -> None:
        kind = self._take() if self._token in ("public", "weak") else ""
        if kind == "public":
            file.public_dependency.append(len(file.dependency))
        file.dependency.append(self._string())
        self._expect(";")

    def _message(self, message: DescriptorProto) -> None:
        message.name = self._identifier()
        self._body(message)

    def _body(self, message: DescriptorProto) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"messages are nested more than {_DEPTH_MAX} deep")
        self._expect("{")
        while not self._took("}"):
            self._member(message, None)
        self._close(message)
        self._depth -= 1

    def _member(self, message: DescriptorProto, oneof: int | None) -> None:
        word = self._take()
        # Any of these may be the name of a type too: then a name follows, as `message = 1` never does.
        if word == "message":
            self._message(message.nested_type.add())
        elif word == "enum":
            self._enum(message.enum_type.add())
        elif word in ("option", "reserved", "extensions", "extend"):
            self._pass_over()
        elif word == "oneof" and oneof is None:
            self._oneof(message)
        elif word == "map" and self._token == "<":
            self._map(message)
        elif word != ";":
            label = _LABELS.get(word)
            self._field(message, self._take() if label is not None else word, label, oneof)

    def _oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._identifier())
        self._expect("{")
        while not self._took("}"):
            self._member(message, index)

    def _field(self, message: DescriptorProto, kind: str, label: int | None, oneof: int | None) -> None:
        field = message.field.add(label=label or _F.LABEL_OPTIONAL)
        if oneof is not None:
            field.oneof_index = oneof
        elif self._is_proto3 and label == _F.LABEL_OPTIONAL:
            field.proto3_optional = True
        if kind == "group":
            self._group(message, field)
            return
        self._set_type(field, kind)
        field.name = self._identifier()
        self._expect("=")
        field.number = self._number()
        self._field_end()

    def _group(self, message: DescriptorProto, field: FieldDescriptorProto) -> None:
        inner = message.nested_type.add(name=self._identifier())
        field.name, field.type, field.type_name = inner.name.lower(), _F.TYPE_GROUP, inner.name
        self._expect("=")
        field.number = self._number()
        if self._token == "[":
            self._pass_over_brackets()
        self._body(inner)

    def _map(self, message: DescriptorProto) -> None:
        self._expect("<")
        key = self._take()
        self._expect(",")
        value = self._take()
        self._expect(">")
        name = self._identifier()
        self._expect("=")
        entry = message.nested_type.add(name=_camel(name) + "Entry")
        entry.options.map_entry = True
        for number, (member, kind) in enumerate((("key", key), ("value", value)), 1):
            self._set_type(entry.field.add(name=member, number=number, label=_F.LABEL_OPTIONAL), kind)
        message.field.add(
            name=name,
            number=self._number(),
            label=_F.LABEL_REPEATED,
            type=_F.TYPE_MESSAGE,
            type_name=entry.name,
        )
        self._field_end()

    def _set_type(self, field: FieldDescriptorProto, kind: str) -> None:
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        elif kind and (kind[0].isalpha() or kind[0] in "._"):
            field.type_name = kind
        else:
            raise self._unexpected(kind)

    def _field_end(self) -> None:
        if self._token == "[":
            self._pass_over_brackets()
        self._expect(";")

    def _close(self, message: DescriptorProto) -> None:
        """A field that is optional in proto3 is a oneof by itself; those come behind all others."""
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._identifier()
        self._expect("{")
        while not self._took("}"):
            name = self._take()
            if name == ";":
                continue
            if name == "option" and self._token == "allow_alias":
                self._take()
                self._expect("=")
                enum.options.allow_alias = self._take() == "true"
                self._expect(";")
            elif name in ("option", "reserved") and self._token != "=":
                self._pass_over()
            else:
                self._expect("=")
                enum.value.add(name=name, number=self._number())
                self._field_end()

    def _pass_over(self) -> None:
        """A statement: up to its semicolon, or its block."""
        while (word := self._take()) != ";":
            if word in _CLOSING:
                self._at -= 1
                self._pass_over_brackets()
                # The block of `service` and `extend` ends them; an option's value has a semicolon behind it.
                if word == "{":
                    self._took(";")
                    return

    def _pass_over_brackets(self) -> None:
        waiting = [_CLOSING[self._take()]]
        while waiting:
            word = self._take()
            if word in _CLOSING:
                waiting.append(_CLOSING[word])
            elif word == waiting[-1]:
                waiting.pop()
            elif word in _CLOSING.values():
                raise self._unexpected(word)

    # ---- tokens

    def _split(self) -> list[tuple[str, int]]:
        """With their places; the end is an empty one."""
        tokens, at = [], 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise self._wrong(f"{self._text[at]!r} makes no sense", at)
            if found.lastgroup != "space":
                tokens.append((found.group(), at))
            at = found.end()
        return [*tokens, ("", at)]

    @property
    def _token(self) -> str:
        return self._tokens[self._at][0]

    def _take(self) -> str:
        token = self._token
        if not token:
            raise self._wrong("it ends too early")
        self._at += 1
        return token

    def _took(self, token: str) -> bool:
        is_there = self._token == token
        self._at += is_there
        return is_there

    def _expect(self, token: str) -> None:
        if (there := self._take()) != token:
            raise self._unexpected(there, token)

    def _identifier(self) -> str:
        token = self._take()
        if not (token[0].isalpha() or token[0] in "_."):
            raise self._unexpected(token, "a name")
        return token

    def _string(self) -> str:
        parts = []
        while self._token[:1] in ("'", '"'):
            parts.append(self._take()[1:-1])
        if not parts or any("\\" in one for one in parts):
            raise self._unexpected(self._token, "a text without escapes")
        return "".join(parts)

    def _number(self) -> int:
        sign = -1 if self._took("-") else 1
        token = self._take()
        try:
            is_octal = len(token) > 1 and token[0] == "0" and token.isdigit()
            number = sign * int(token, 8 if is_octal else 0)
        except ValueError:
            raise self._unexpected(token, "a number") from None
        if not -(1 << 31) <= number < 1 << 31:
            raise self._wrong(f"the number {number} is too large")
        return number

    def _unexpected(self, there: str, wanted: str | None = None) -> SchemaError:
        self._at = max(0, self._at - 1)
        return self._wrong(f"{there!r} is not expected" + (f", but {wanted!r}" if wanted else ""))

    def _wrong(self, what: str, at: int | None = None) -> SchemaError:
        line = self._text.count("\n", 0, self._tokens[self._at][1] if at is None else at) + 1
        return SchemaError(f"{self._name}, line {line}: {what}")


def _camel(name: str) -> str:
    return "".join(one[:1].upper() + one[1:] for one in name.split("_"))
