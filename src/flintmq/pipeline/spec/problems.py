"""What is wrong with a pipeline, and how it is told. Pure.

    FlintError
    └── ConfigurationError
        └── PipelineError        all problems of a file at once

Invariant: a problem says where it is, what is wrong, and what to do. Warnings alone never stop anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from flintmq.errors import ConfigurationError
from flintmq.pipeline.spec.source_map import Place
from flintmq.settings.declaration import nearest

_SHOWN_MAX = 100


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Rule(StrEnum):
    """What may be wrong; `meaning` is what the reference says of it."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Rule:
        rule = str.__new__(cls, name)
        rule._value_ = name
        rule.meaning = meaning
        return rule

    YAML = "yaml", "the file is no YAML, or cannot be read"
    UNKNOWN_FIELD = "unknown-field", "a field that there is not"
    MISSING_FIELD = "missing-field", "a field that must be given, or none of those of which one must"
    WRONG_VALUE = "wrong-value", "a value of another kind, or one that cannot be"
    ENVIRONMENT = "environment", "`${NAME}` of a variable that is not set"
    DUPLICATE = "duplicate", "two things of one name, or two sinks of one place that spoil each other's rows"
    UNKNOWN_NAME = "unknown-name", "a source or step that there is not"
    CYCLE = "cycle", "steps that need each other"
    UNUSED = "unused", "a source or step that no sink needs"
    SQL = "sql", "SQL that cannot be"
    SCHEMA = "schema", "columns that cannot be, or a schema that the format needs or does not take"
    COLUMN = "column", "a column that the schema does not have"
    PYTHON = "python", "a Python file or a name in it that is missing"
    MISSING_FILE = "missing-file", "a file that is named and not there"
    DEAD_LETTERS = "dead-letters", "`dead-letter` without `dead_letters`"
    NO_WATERMARK = "no-watermark", "state that grows without end, as nothing says when it is complete"
    LOOP = "loop", "a topic that is both read and written"
    CHECKPOINT = "checkpoint", "a checkpoint of two pipelines"


@dataclass(frozen=True, slots=True)
class Problem:
    rule: Rule
    place: Place
    message: str
    hint: str = ""
    severity: Severity = Severity.ERROR

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR

    def render(self) -> str:
        """The message, the line with a caret below it, and what to do."""
        lines = [f"{self.place}: {self.severity}: {self.message}"]
        if self.place.line:
            shown, column = _cut(self.place.text, self.place.column)
            number = str(self.place.line)
            # Tabs stay, so that the caret is below its character however wide they are.
            below = "".join("\t" if char == "\t" else " " for char in shown[: column - 1])
            lines.append(f"  {number} | {shown}")
            lines.append(f"  {'':{len(number)}} | {below}^")
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)


class PipelineError(ConfigurationError):
    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = in_order(problems)
        super().__init__("\n".join(problem.render() for problem in self.problems))

    def __reduce__(self) -> tuple[type[PipelineError], tuple[Sequence[Problem]]]:
        return PipelineError, (self.problems,)


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """By place; each once."""
    return sorted(
        dict.fromkeys(problems),
        key=lambda one: (one.place.file, one.place.line, one.place.column, one.message),
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to do about a name that is not there."""
    names = list(known)
    guess = nearest(name, names)
    if guess is not None:
        return f"did you mean {guess}?"
    return f"there is {', '.join(names)}" if names else ""


def _cut(line: str, column: int) -> tuple[str, int]:
    """A part of a long line with the column in it, and the column there."""
    if len(line) <= _SHOWN_MAX:
        return line, column
    start = max(0, min(column - _SHOWN_MAX // 2, len(line) - _SHOWN_MAX))
    end = start + _SHOWN_MAX
    shown = ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")
    return shown, column - start + (1 if start else 0)
