"""SQL as words and signs, with their places. Pure.

Knows strings, quoted names and comments as Spark has them, so that nothing inside of one is taken for a word.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PATTERN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<number>\d\w*(?:\.\d+)?)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign>\|>|[^\s])""",
    re.VERBOSE | re.DOTALL,
)
_UNCLOSED: Final = {"'": "a string", '"': "a string", "`": "a quoted name"}


class SqlError(ValueError):
    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Token(NamedTuple):
    kind: str
    """word, quoted, string, number or sign; empty at the end."""
    text: str
    """Of a quoted name without its quotes."""
    offset: int

    @property
    def word(self) -> str:
        """In capitals; empty for what is no bare word, and so no keyword."""
        return self.text.upper() if self.kind == "word" else ""

    def is_sign(self, sign: str) -> bool:
        return self.kind == "sign" and self.text == sign


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def tokens(sql: str) -> list[Token]:
    """Without comments; the last one is the end."""
    found: list[Token] = []
    at = 0
    while at < len(sql):
        match = _PATTERN.match(sql, at)
        assert match is not None
        assert match.lastgroup is not None
        kind, text = match.lastgroup, match[0]
        if kind == "comment":
            at = _comment_end(sql, at)
            continue
        if kind == "sign" and text in _UNCLOSED:
            raise SqlError(f"{_UNCLOSED[text]} that begins here is never closed", at)
        if kind != "space":
            shown = text[1:-1].replace("``", "`") if kind == "quoted" else text
            found.append(Token(kind, shown, at))
        at = match.end()
    found.append(Token("", "", len(sql)))
    return found


def _comment_end(sql: str, start: int) -> int:
    """Comments may have comments in them."""
    depth, at = 0, start
    while at < len(sql):
        if sql.startswith("/*", at):
            depth, at = depth + 1, at + 2
        elif sql.startswith("*/", at):
            depth, at = depth - 1, at + 2
            if not depth:
                return at
        else:
            at += 1
    raise SqlError("a comment that begins here is never closed", start)
