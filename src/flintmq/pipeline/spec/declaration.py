"""How a field of a pipeline's file is declared, and its place as a field of the class that holds it.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Watermark(Part):
        column: str = declared(FieldKind.TEXT, "the column with the time of an event")

The class is what the code reads; `fields_of(Watermark)` is what the reader, the JSON schema, the reference and the
check of a changed file read: there is no second list. A class may have `TAG`, the field by which it is told from the
others that may stand in its place, and `SHORT`, the field that a plain text in its place gives.
This module must not know any particular field.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum, auto
from types import NoneType
from typing import Any, ClassVar, Final

from flintmq.pipeline.spec.source_map import NOWHERE, Place

_CREDENTIALS: Final = re.compile(r"(?<=//)[^/@\s]*@")
_SECRET_NAME: Final = re.compile(
    r"password|secret|token|credential|sasl\.jaas|access\.?key|keystore\.key|key\.pem", re.IGNORECASE
)


class FieldKind(Enum):
    TEXT = auto()
    FLAG = auto()
    COUNT = auto()
    CHOICE = auto()
    DURATION = auto()
    COLUMNS = auto()
    """Columns as Spark writes them: `id long, at timestamp`."""
    SQL = auto()
    PYTHON = auto()
    """`file.py:name`"""
    PATH = auto()
    NAME = auto()
    """Of a source or step."""
    NAMES = auto()
    """Of one or several."""
    TEXTS = auto()
    """One or several."""
    OPTIONS = auto()
    """Names and texts as they are for somebody else."""
    PART = auto()
    PARTS = auto()
    """Parts by their names."""


class Lasting(Enum):
    """Whether a field may change when there is a checkpoint."""

    FREE = "yes"
    FIXED = "no"
    STATE = "not if the step keeps state"


REQUIRED: Final = MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Anything of the file that has fields."""

    TAG: ClassVar[str] = ""
    SHORT: ClassVar[str] = ""

    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredField:
    name: str
    attribute: str
    kind: FieldKind
    meaning: str
    default: Any
    """REQUIRED if there is none."""
    choices: tuple[str, ...]
    of: tuple[type[Part], ...]
    """Of a part: the classes that it may be."""
    lasting: Lasting
    is_secret: bool

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def default_text(self) -> str:
        if self.default is REQUIRED or isinstance(self.default, (NoneType, Part, dict, tuple)):
            return ""
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


def declared(
    kind: FieldKind,
    meaning: str,
    default: Any = REQUIRED,
    *,
    name: str = "",
    choices: tuple[str, ...] = (),
    of: tuple[type[Part], ...] = (),
    lasting: Lasting = Lasting.FREE,
    is_secret: bool = False,
) -> Any:
    """A dataclass field that carries its declaration; `name` where Python's name cannot be the file's."""
    about = {
        "name": name,
        "kind": kind,
        "meaning": meaning,
        "default": default,
        "choices": choices,
        "of": of,
        "lasting": lasting,
        "is_secret": is_secret,
    }
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"declared": about})
    return field(default=default, metadata={"declared": about})


def fields_of(part: type[Part]) -> dict[str, DeclaredField]:
    """By the file's names, in the order declared; the tag first."""
    found = [
        DeclaredField(
            **{**item.metadata["declared"], "name": item.metadata["declared"]["name"] or item.name},
            attribute=item.name,
        )
        for item in fields(part)
        if "declared" in item.metadata
    ]
    found.sort(key=lambda one: one.name != part.TAG)
    return {one.name: one for one in found}


def without_credentials(text: str) -> str:
    """Return a text without the user and password of a URL, and without what follows the name of a database."""
    text = _CREDENTIALS.sub("", text)
    return re.split(r"[?;]", text, maxsplit=1)[0] if text.startswith("jdbc:") else text


def is_secret_name(name: str) -> bool:
    """Return whether the value of an option of this name must not be shown or kept."""
    return _SECRET_NAME.search(name) is not None
