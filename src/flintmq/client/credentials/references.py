"""`${env:NAME}` and `${file:PATH}` in client settings, resolved in the process that connects."""

from __future__ import annotations

import os

from flintmq.settings import secret_references


def resolve(text: str, what: str) -> str:
    """Return the value; `what` is the setting. ConfigurationError says what is missing, without the value."""
    if not secret_references.has_reference(text):
        return text
    return secret_references.resolve(text, what=what, environment=os.environ, read_file=_read)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(secret_references.BYTES_MAX + 1)
