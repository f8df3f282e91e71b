"""Python source under construction, which remembers the field that each of its lines is about.

The generated function catches what its own lines raise; the number of the line that raised then names
the field, so that good input pays nothing for good error messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from flintmq.errors import ProtocolError, UnsupportedVersion
from flintmq.protocol.codegen.schema import Field, MessageSchema
from flintmq.protocol.primitives import FORMATS, UnrepresentableError

Names = dict[str, Any]

_LENGTH_SIZES: Final = {"string": 2, "bytes": 4, "records": 4}


class Source:
    """Lines of one function, and the constants they refer to."""

    def __init__(self, schema: MessageSchema, version: int, signature: str) -> None:
        self.schema = schema
        self.version = version
        self.flexible = version >= schema.flexible
        self.constants: Names = {}
        self._lines = [signature]
        self._paths = ["", ""]
        self._locals = 0
        self.depth = 1
        self.path = ""

    def emit(self, text: str, path: str | None = None) -> None:
        """Adds a line about the field at `path`, or at the current one."""
        self._lines.append("    " * self.depth + text)
        self._paths.append(self.path if path is None else path)

    def local(self, prefix: str) -> str:
        """A local name not used before."""
        self._locals += 1
        return f"{prefix}{self._locals}"

    def constant(self, name: str, value: object) -> str:
        self.constants[name] = value
        return name

    def compact(self, field: Field) -> bool:
        return self.flexible and field.compactable

    def build(self, name: str) -> Callable[..., Any]:
        title = f"{self.schema.name} v{self.version}"
        paths = tuple(self._paths)
        names: Names = {
            **self.constants,
            "malformed": lambda error: _malformed(error, title, paths),
            "unwritable": lambda error: _unwritable(error, title, paths),
        }
        exec(compile("\n".join(self._lines), f"<{name} {title}>", "exec"), names)  # nosec B102
        function: Callable[..., Any] = names[name]
        return function


def _malformed(error: Exception, title: str, paths: tuple[str, ...]) -> ProtocolError:
    if isinstance(error, struct.error | IndexError):
        reason = "the bytes end too early"
    elif isinstance(error, UnicodeDecodeError):
        reason = "a string that is not UTF-8"
    else:
        reason = str(error)
    return ProtocolError(f"{title}, {_path(error, paths)}: {reason}")


def _unwritable(error: Exception, title: str, paths: tuple[str, ...]) -> Exception:
    where = f"{title}, {_path(error, paths)}"
    if isinstance(error, UnrepresentableError):
        return UnsupportedVersion(f"{where}: set, but this version does not have it")
    return ValueError(f"{where}: {error}")


def _path(error: Exception, paths: tuple[str, ...]) -> str:
    # The first entry is the frame that caught the error: the generated function itself.
    traceback = error.__traceback__
    line = traceback.tb_lineno if traceback is not None else 0
    return (paths[line] if line < len(paths) else "") or "message"


def span(paths: list[str]) -> str:
    """What to call several fields that are read or written together."""
    return paths[0] if paths[0] == paths[-1] else f"{paths[0]} to {paths[-1]}"


def minimal_size(schema: MessageSchema, struct_name: str, version: int) -> int:
    """The fewest bytes a struct can take: what bounds a count by the bytes that are left."""
    flexible = version >= schema.flexible
    size = 1 if flexible else 0
    for field in schema.structs[struct_name]:
        if field.present(version) and not field.is_tagged(version):
            size += minimal_field_size(schema, field, version)
    return size


def minimal_field_size(schema: MessageSchema, field: Field, version: int) -> int:
    compact = version >= schema.flexible and field.compactable
    if field.array:
        return 1 if compact else 4
    return 1 if field.struct and field.may_be_null(version) else minimal_element_size(schema, field, version)


def minimal_element_size(schema: MessageSchema, field: Field, version: int) -> int:
    if field.struct:
        return minimal_size(schema, field.struct, version)
    if field.kind in FORMATS:
        return struct.calcsize(">" + FORMATS[field.kind])
    return 1 if version >= schema.flexible and field.compactable else _LENGTH_SIZES[field.kind]
