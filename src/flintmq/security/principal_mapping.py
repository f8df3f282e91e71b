"""`ssl.principal.mapping.rules`: from the distinguished name of a client certificate to the name of a principal.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),.*$/$1@example/L,DEFAULT

The first rule whose pattern matches the whole name decides. `$1` is a group of the pattern, `L` and `U` change the
case, and DEFAULT takes the name as it is. Without a matching rule the client is rejected, as in Kafka.
Patterns are Java's as far as Python has the same syntax; named groups are written either way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DEFAULT_RULES: Final = "DEFAULT"
_BODY: Final = r"(?:\\.|[^\\/])*"
_RULE: Final = re.compile(rf"(DEFAULT)|RULE:({_BODY})/({_BODY})/([LU]?)", re.DOTALL)
_SEPARATOR: Final = re.compile(r"\s*(?:,\s*|$)")
_NAMED_GROUP: Final = re.compile(r"\(\?<(?![=!])")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self.pattern.sub(self._replaced, name)
        if self.case == "L":
            return mapped.lower()
        return mapped.upper() if self.case == "U" else mapped

    def _replaced(self, match: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda reference: _value(reference, match), self.replacement)


def _value(reference: re.Match[str], match: re.Match[str]) -> str:
    escaped, digits, group = reference.groups()
    if escaped is not None:
        return str(escaped)
    if group is not None:
        return match[group] or ""
    count = match.re.groups
    # `$12` with fewer than twelve groups is the first group with a 2 after it.
    taken = len(digits)
    while taken > 1 and int(digits[:taken]) > count:
        taken -= 1
    if int(digits[:taken]) > count:
        return str(reference[0])
    return (match[int(digits[:taken])] or "") + digits[taken:]


class PrincipalMapping:
    """The rules of one listener."""

    __slots__ = ("_rules", "text")

    def __init__(self, text: str = DEFAULT_RULES) -> None:
        """Raise ValueError if a rule cannot be read."""
        self.text = text
        self._rules = _parse(text)

    def name_of(self, distinguished_name: str) -> str | None:
        """Return the principal's name, or None if no rule matches."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        return None


def _parse(text: str) -> tuple[_Rule | None, ...]:
    """Read the rules; None stands for DEFAULT."""
    rules: list[_Rule | None] = []
    text = text.strip()
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        after = _SEPARATOR.match(text, match.end() if match else position)
        if after is None or (match is None and after.end() == position):
            raise ValueError(
                f"{text[position:]!r} is not a rule; rules are DEFAULT or RULE:pattern/replacement/ with L or U "
                "after the last slash, separated by commas"
            )
        if match is not None:
            rules.append(None if match[1] else _rule(match[2], match[3], match[4]))
        position = after.end()
    return tuple(rules)


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(_NAMED_GROUP.sub("(?P<", pattern))
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} cannot be read: {error}") from None
    for reference in _REFERENCE.finditer(replacement):
        if reference[3] is not None and reference[3] not in compiled.groupindex:
            raise ValueError(
                f"the replacement {replacement!r} names the group {reference[3]!r}, which is not there"
            )
    return _Rule(compiled, replacement, case)
