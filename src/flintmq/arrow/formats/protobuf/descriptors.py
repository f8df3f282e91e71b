"""`.proto` files with what they import, as one set of descriptors, in which each file comes after its imports. Pure.

Google's well-known types need not be given. An import that nobody has is left out: most are there for options, which
change nothing in a message's bytes, and a type that is missed then is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from flintmq.arrow.formats.decoder import SchemaError
from flintmq.arrow.formats.protobuf.parser import parse

_WELL_KNOWN: Final = {
    one.DESCRIPTOR.name: one.DESCRIPTOR
    for one in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}
_FILES_MAX: Final = 1000

Find = Callable[[str], str | None]
"""The text of an imported file, by the name that the import has; None if it is not there."""


def compile_text(text: str, find: Find, *, name: str = "schema.proto") -> bytes:
    """A FileDescriptorSet, with the file of this text last."""
    return _Files(find).compiled(text, name)


def completed(files: bytes) -> bytes:
    """A set of descriptors as protoc made it, with the well-known types that it may lack."""
    try:
        given = FileDescriptorSet.FromString(files)
    except DecodeError:
        raise SchemaError(
            "This is no set of Protobuf descriptors: give what `protoc --include_imports -o FILE` makes, or .proto"
        ) from None
    there = {one.name for one in given.file}
    done: dict[str, FileDescriptorProto] = {}
    for file in given.file:
        for name in file.dependency:
            if name not in there:
                _add_well_known(name, done)
    for file in given.file:
        done[file.name] = file
    return bytes(FileDescriptorSet(file=done.values()).SerializeToString())


def _add_well_known(name: str, done: dict[str, FileDescriptorProto]) -> bool:
    found = _WELL_KNOWN.get(name)
    if found is None:
        return False
    file = FileDescriptorProto()
    found.CopyToProto(file)
    for other in file.dependency:
        _add_well_known(other, done)
    done.setdefault(name, file)
    return True


class _Files:
    def __init__(self, find: Find) -> None:
        self._find = find
        self._done: dict[str, FileDescriptorProto] = {}

    def compiled(self, text: str, name: str) -> bytes:
        self._add(text, name, ())
        return bytes(FileDescriptorSet(file=self._done.values()).SerializeToString())

    def _add(self, text: str, name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise SchemaError(
                f"{name} imports itself, by way of {', '.join(path[path.index(name) + 1 :]) or name}"
            )
        if len(path) + len(self._done) > _FILES_MAX:
            raise SchemaError(f"{path[0]} imports more than {_FILES_MAX} files")
        file = parse(text, name=name)
        missing = []
        for other in file.dependency:
            if other in self._done or _add_well_known(other, self._done):
                continue
            found = self._find(other)
            if found is None:
                missing.append(other)
            else:
                self._add(found, other, (*path, name))
        if missing:
            # `public_dependency` counts places among the imports; without it everything given is seen anyway.
            kept = [one for one in file.dependency if one not in missing]
            public = [file.dependency[at] for at in file.public_dependency]
            del file.dependency[:], file.public_dependency[:]
            file.dependency.extend(kept)
            file.public_dependency.extend(kept.index(one) for one in public if one in kept)
        self._done[name] = file
