"""YAML as nodes that know where they stand: the text of a file in, nodes and problems out. Pure.

Invariant: nothing here knows which fields there are. Whatever the bytes, there is a node or a problem, never another
error.
"""

from __future__ import annotations

import re
from typing import Final

import yaml

from flintmq.pipeline.spec.problems import Problem, Rule
from flintmq.pipeline.spec.source_map import SourceFile

TEXT_MAX: Final = 1 << 20
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*\s+)*")
_ESCAPES: Final = {"x": 4, "u": 6, "U": 10}


def compose(source: SourceFile) -> yaml.Node | Problem:
    """The document of a file, of which there must be one."""
    if len(source.text) > TEXT_MAX:
        return Problem(Rule.YAML, source.place(0), f"the file has more than {TEXT_MAX:,} characters")
    try:
        node: yaml.Node | None = yaml.compose(source.text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(part for part in (error.context, error.problem) if part)
        return Problem(
            Rule.YAML, source.place(mark.index if mark else 0), f"not valid YAML: {words}", _hint(error)
        )
    except yaml.reader.ReaderError as error:
        place = source.place(int(error.position))
        return Problem(
            Rule.YAML, place, f"not valid YAML: a character that may not be there ({error.reason})"
        )
    except RecursionError:
        return Problem(Rule.YAML, source.place(0), "not valid YAML: nested too deep")
    if node is None:
        return Problem(
            Rule.YAML, source.place(0), "the file is empty", "begin with `name:`, `sources:` and `sinks:`"
        )
    return node


def origins(source: SourceFile, node: yaml.ScalarNode) -> list[int]:
    """Where each character of a scalar's value was written, and the end.

    Folding changes nothing but white space, so both texts are walked along, and white space is passed over.
    """
    text, end, style = source.text, node.end_mark.index, node.style
    found_start = _PROPERTIES.match(text, node.start_mark.index)
    at = found_start.end() if found_start else node.start_mark.index
    start = at
    if style in ("|", ">"):
        at = text.find("\n", at) + 1
    elif style in ("'", '"'):
        at += 1
    found: list[int] = []
    for char in node.value:
        if char.isspace():
            at, size = _space(text, at, char) if style == '"' else (at, 0)
            found.append(min(at, end))
            at += size
            continue
        at = min(_passed(text, at, style), end)
        size = 1
        if style == "'" and text[at : at + 1] == "'":
            size = 2
        elif style == '"' and text[at : at + 1] == "\\":
            size = _ESCAPES.get(text[at + 1 : at + 2], 2)
        elif text[at : at + 1] != char:
            # Something that is not understood here: the rest stands at the beginning.
            return found + [start] * (len(node.value) + 1 - len(found))
        found.append(at)
        at += size
    return [*found, min(at, end)]


def _passed(text: str, at: int, style: str | None) -> int:
    """Behind white space, and in double quotes behind line breaks that a backslash hides."""
    while at < len(text) and (text[at].isspace() or (style == '"' and text.startswith("\\\n", at))):
        at += 2 if text[at] == "\\" else 1
    return at


def _space(text: str, at: int, char: str) -> tuple[int, int]:
    """Where white space in double quotes is written, and in how many characters: as it is, escaped, or folded."""
    if text[at : at + 1] == char != "\n":
        return at, 1
    behind = _passed(text, at, '"')
    is_escaped = text[behind : behind + 1] == "\\" and text[behind + 1 : behind + 2] in tuple("nrt \tN_LP")
    return (behind, 2) if is_escaped else (at, 0)


def _hint(error: yaml.MarkedYAMLError) -> str:
    words = f"{error.problem}"
    if "mapping values are not allowed" in words:
        return "put a text that has a colon in it into quotes, or check the indentation"
    if "'\\t'" in words:
        return "indent with spaces: YAML does not take tabs"
    if "expected a single document" in str(error.context):
        return "a file is one pipeline; remove what follows `---`"
    return ""
