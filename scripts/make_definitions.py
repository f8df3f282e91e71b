"""Writes `protocol/codegen/definitions.txt` and `protocol/messages.pyi` from the message JSON in Kafka's jars.

    python scripts/make_definitions.py kafka-clients-4.3.1.jar [another.jar ...] [--into FOLDER]

Only facts are taken over: names, keys, types, version ranges, defaults and tags. The output depends on
nothing but the jars and `protocol/codegen/own_definitions.txt` (FlintMQ's own messages, written by hand, which
the stub tells type checkers of too), so a test can compare it with what is committed.

The text has one block per message, blocks separated by an empty line:

    NAME KIND KEY VERSIONS FLEXIBLE         the message; KEY may be -, FLEXIBLE may be none
     field TYPE VERSIONS [MODIFIER ...]     its fields, in wire order
    STRUCT                                  a struct used by the block's fields, followed by its fields

TYPE is a primitive or a struct's name, with [] in front for arrays. Modifiers: null:RANGE, tag:N:RANGE,
default:VALUE, ignorable, key, inflexible (never written in compact form).
"""

from __future__ import annotations

import argparse
import io
import json
import keyword
import os
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from flintmq.protocol.codegen.schema import STRUCT, Field, own_definitions

Json = dict[str, Any]

PRIMITIVES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "uuid": "bytes",
    "bytes": "bytes",
    "records": "Buffer",
}
NULLABLE = {"string", "bytes", "records"}
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "flintmq", "protocol")

STUB_HEADER = """\
# Written by scripts/make_definitions.py: do not edit.
from flintmq.effects import Buffer
from flintmq.protocol.codegen.structures import Message, Struct

def names(kind: str | None = None) -> list[str]: ...
def load(name: str) -> type[Message]: ...
def request_of(api_key: int) -> type[Message]: ...
def response_of(api_key: int) -> type[Message]: ...
"""


def snake_case(name: str) -> str:
    words = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    snake = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", words).lower()
    return snake + "_" if keyword.iskeyword(snake) else snake


def read_messages(jars: list[str]) -> list[Json]:
    """Every message with valid versions, by name; versions still unstable in Kafka are cut off."""
    found: dict[str, Json] = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for entry in sorted(archive.namelist()):
                if re.fullmatch(r"common/message/\w+\.json", entry):
                    text = re.sub(r"^\s*//.*$", "", archive.read(entry).decode(), flags=re.MULTILINE)
                    message = json.loads(text)
                    if message["name"] in found:
                        raise SystemExit(f"{jar}: {message['name']} is defined twice")
                    if message["validVersions"] != "none":
                        found[message["name"]] = message
    unstable = {message["apiKey"] for message in found.values() if message.get("latestVersionUnstable")}
    for message in found.values():
        if message.get("apiKey") in unstable and message["type"] in ("request", "response"):
            lowest, _, highest = message["validVersions"].partition("-")
            message["validVersions"] = f"{lowest}-{int(highest) - 1}"
    return [found[name] for name in sorted(found)]


def structs_of(message: Json) -> Iterator[tuple[str, list[Json]]]:
    """Name and fields of the message itself, then of every struct in it, in order of appearance."""
    pending = [(message["name"], message["fields"])]
    pending += [(common["name"], common["fields"]) for common in message.get("commonStructs", [])]
    while pending:
        name, fields = pending.pop(0)
        yield name, fields
        pending += [(element(field), field["fields"]) for field in fields if field.get("fields")]


def element(field: Json) -> str:
    return str(field["type"]).removeprefix("[]")


def default_of(field: Json) -> str | None:
    """The default as text, or None where it is the type's own."""
    default = field.get("default")
    if default is None or default == "":
        return None
    text = str(default).lower() if field["type"] == "bool" else str(default)
    if field["type"].startswith(("int", "uint")):
        text = str(int(text, 0))
        return None if text == "0" else text
    return None if (field["type"], text) == ("bool", "false") else text


def field_line(field: Json) -> str:
    tagged = field.get("taggedVersions", "none")
    words = [snake_case(field["name"]), field["type"], field.get("versions") or tagged]
    if field.get("nullableVersions", "none") != "none":
        words.append(f"null:{field['nullableVersions']}")
    if tagged != "none":
        words.append(f"tag:{field['tag']}:{tagged}")
    default = default_of(field)
    if default is not None:
        words.append(f"default:{default}")
    words += [word for word, key in (("ignorable", "ignorable"), ("key", "mapKey")) if field.get(key)]
    if field.get("flexibleVersions") == "none":
        words.append("inflexible")
    return " " + " ".join(words)


def definitions(messages: list[Json]) -> str:
    blocks = []
    for message in messages:
        key = message.get("apiKey", "-")
        versions, flexible = message["validVersions"], message.get("flexibleVersions", "none")
        lines = [f"{message['name']} {message['type']} {key} {versions} {flexible}"]
        for index, (name, fields) in enumerate(structs_of(message)):
            lines += [name] if index else []
            lines += [field_line(field) for field in fields]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def annotation(field: Json, message: str) -> str:
    kind = element(field)
    text = PRIMITIVES.get(kind) or f"{message}.{kind}"
    if field["type"].startswith("[]"):
        text = f"list[{text}]"
    optional = field.get("nullableVersions", "none") != "none" or kind == "records"
    return f"{text} | None" if optional else text


def stub(messages: list[Json]) -> str:
    out = io.StringIO()
    out.write(STUB_HEADER)
    for message in messages:
        name = message["name"]
        (_, own), *structs = structs_of(message)
        out.write(f"\nclass {name}(Message):" + ("\n" if own else " ...\n"))
        for struct, fields in structs:
            out.write(f"    class {struct}(Struct):\n")
            for field in fields:
                out.write(f"        {snake_case(field['name'])}: {annotation(field, name)} = ...\n")
            out.write("\n")
        for field in own:
            out.write(f"    {snake_case(field['name'])}: {annotation(field, name)} = ...\n")
    for name in own_definitions().names():
        out.write(own_stub(name))
    return out.getvalue()


def own_annotation(field: Field, message: str) -> str:
    text = f"{message}.{field.struct}" if field.kind == STRUCT else PRIMITIVES[field.kind]
    text = f"list[{text}]" if field.array else text
    return f"{text} | None" if field.ever_null else text


def own_stub(name: str) -> str:
    """The stub of one of FlintMQ's own messages."""
    structs = own_definitions().parse(name).structs
    lines = [f"\nclass {name}(Message):"]
    for struct, fields in structs.items():
        if struct != name:
            lines.append(f"    class {struct}(Struct):")
            lines += [f"        {field.name}: {own_annotation(field, name)} = ..." for field in fields]
            lines.append("")
    lines += [f"    {field.name}: {own_annotation(field, name)} = ..." for field in structs[name]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the wire definitions from Kafka's jars.")
    parser.add_argument("jars", nargs="+", metavar="JAR")
    parser.add_argument("--into", default=PACKAGE, metavar="FOLDER")
    arguments = parser.parse_args()
    messages = read_messages(arguments.jars)
    for name, text in (("codegen/definitions.txt", definitions(messages)), ("messages.pyi", stub(messages))):
        with open(os.path.join(arguments.into, name), "w", encoding="utf-8") as file:
            file.write(text)
    print(f"{len(messages)} messages")


if __name__ == "__main__":
    main()
