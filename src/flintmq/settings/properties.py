"""Java's properties files, as Kafka's tools read them: `name=value`, one a line. Pure."""

from __future__ import annotations


def parse_properties(text: str) -> dict[str, str]:
    """Read a properties file: `#` and `!` begin comments, `\\` continues a line."""
    properties: dict[str, str] = {}
    joined = ""
    for line in text.splitlines():
        line = line.lstrip()
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        _add_property(joined + line, properties)
        joined = ""
    if joined:
        _add_property(joined, properties)
    return properties


def _add_property(line: str, properties: dict[str, str]) -> None:
    at = next((index for index, char in enumerate(line) if char in "=: \t"), len(line))
    rest = line[at:].lstrip(" \t")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t")
    properties[line[:at]] = _unescaped(rest.rstrip())


def _unescaped(value: str) -> str:
    out, chars = [], iter(value)
    for char in chars:
        if char == "\\":
            char = next(chars, "")
            char = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(char, char)
            if char == "u":
                digits = "".join(next(chars, "") for _ in range(4))
                char = chr(int(digits, 16)) if len(digits) == 4 else digits
        out.append(char)
    return "".join(out)
