"""The value of `sasl.jaas.config`, in Kafka's syntax:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret" user_bob="…";

Pure. Errors never quote the value, which holds passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/                       # left out
      | "((?:[^"\\\n]|\\.)*)" | '((?:[^'\\\n]|\\.)*)'    # quoted, with escapes
      | ([A-Za-z0-9_$.\-\u00a0-\uffff]+)                 # a word
      | ([=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasEntry(NamedTuple):
    login_module: str
    options: dict[str, str]


def parse_jaas(text: str) -> list[JaasEntry]:
    """Read the entries; ValueError says what is missing, without the value."""
    tokens = list(_tokens(text))
    entries: list[JaasEntry] = []
    position = 0
    while position < len(tokens):
        entry, position = _entry(tokens, position)
        entries.append(entry)
    if not entries:
        raise ValueError("expected a login module, its flag and its options, with a semicolon at the end")
    return entries


def jaas_users(text: str) -> dict[str, str]:
    """Return the passwords of the users that `user_NAME` options declare, by name."""
    return {
        name.removeprefix("user_"): value
        for entry in parse_jaas(text)
        for name, value in entry.options.items()
        if name.startswith("user_")
    }


class _Token(NamedTuple):
    kind: str
    """`word`, or the character itself."""
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(
                f"unexpected character at position {position}; quote values that are not plain words"
            )
        position = match.end()
        double, single, word, mark = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            yield _Token("word", _ESCAPE.sub(_unescape, quoted))
        elif word is not None:
            yield _Token("word", word)
        elif mark is not None:
            yield _Token(mark, mark)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)


def _entry(tokens: list[_Token], position: int) -> tuple[JaasEntry, int]:
    kinds = [token.kind for token in tokens[position : position + 2]]
    if kinds != ["word", "word"] or tokens[position + 1].text.lower() not in _FLAGS:
        raise ValueError(f"expected a login module and its flag ({', '.join(_FLAGS)})")
    login_module = tokens[position].text
    options: dict[str, str] = {}
    position += 2
    while position < len(tokens) and tokens[position].kind != ";":
        name = tokens[position]
        if name.kind != "word" or [one.kind for one in tokens[position + 1 : position + 3]] != ["=", "word"]:
            raise ValueError(f"expected NAME=VALUE as option {len(options) + 1}")
        options[name.text] = tokens[position + 2].text
        position += 3
    if position == len(tokens):
        raise ValueError("expected a semicolon at the end")
    return JaasEntry(login_module, options), position + 1
