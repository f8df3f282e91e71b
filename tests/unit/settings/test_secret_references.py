"""`${env:NAME}` and `${file:PATH}` in values."""

from __future__ import annotations

import pytest

from flintmq.errors import ConfigurationError
from flintmq.settings.secret_references import BYTES_MAX, has_reference, is_reference, resolve

FILES = {"/run/secret": b"from a file\n", "/run/large": b"x" * (BYTES_MAX + 1), "/run/binary": b"\xff"}


def _read(path: str) -> bytes:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", path)
    return FILES[path]


def _resolved(text: str) -> str:
    return resolve(text, what="sasl.password", environment={"A": "${env:B}", "E": ""}, read_file=_read)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("${env:A}", "${env:B}"),
        ("${env:E}", ""),
        ("${file:/run/secret}", "from a file"),
        ("<${env:A}|${file:/run/secret}>", "<${env:B}|from a file>"),
        ("${other:A} $A ${A}", "${other:A} $A ${A}"),
    ],
)
def test_references_are_replaced_once(text: str, value: str) -> None:
    assert _resolved(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${env:MISSING}", "sasl.password refers to the environment variable MISSING, which is not set"),
        ("${file:/none}", "sasl.password refers to the file /none, which cannot be read: No such file"),
        ("${file:/run/large}", "more than"),
        ("${file:/run/binary}", "not UTF-8"),
    ],
)
def test_what_cannot_be_resolved_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        _resolved(text)


def test_only_a_whole_reference_can_be_shown() -> None:
    assert is_reference("${env:A}")
    assert not is_reference("x${env:A}")
    assert has_reference("x${env:A}")
