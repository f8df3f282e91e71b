"""`${NAME}` and `${NAME:-default}` in texts of a file, from the environment; `$${` is `${` itself. Pure.

`${env:NAME}` and `${file:PATH}` stay as they are: they are resolved where a connection is made.

The environment is given. Invariant: every character of the result still knows where it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_REFERENCE: Final = re.compile(
    r"\$(?P<plain>\$\{)|(?P<kept>\$\{(?:env|file):[^}]*\})"
    r"|\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}|\$\{",
    re.ASCII,
)


class Substituted(NamedTuple):
    text: str
    origins: list[int]
    missing: list[tuple[str, int]]
    """Variables that are not set and have no default, and where they are named; no name where there is none."""
    has_changed: bool


def substitute(text: str, origins: Sequence[int], environment: Mapping[str, str]) -> Substituted:
    pieces: list[str] = []
    places: list[int] = []
    missing: list[tuple[str, int]] = []
    at = 0
    for found in _REFERENCE.finditer(text):
        start, end = found.span()
        pieces.append(text[at:start])
        places += origins[at:start]
        at = end
        if found["plain"]:
            value = "${"
        elif found["kept"]:
            value = found["kept"]
        elif found["name"] is None:
            missing.append(("", origins[start]))
            value = ""
        else:
            given = environment.get(found["name"])
            if given is None and found["default"] is None:
                missing.append((found["name"], origins[start]))
            # As in a shell, a default also stands for a variable that is empty.
            value = given or found["default"] or ""
        pieces.append(value)
        places += [origins[start]] * len(value)
    pieces.append(text[at:])
    places += origins[at:]
    return Substituted("".join(pieces), places, missing, at > 0)
