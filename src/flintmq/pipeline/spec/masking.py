"""Texts without the passwords that people put into addresses, for pictures and for files that are kept. Pure."""

from __future__ import annotations

import re
from typing import Final

_CREDENTIALS: Final = re.compile(r"(?<=//)[^/@\s]*@")
_SECRET_NAME: Final = re.compile(r"password|secret|token|credential|sasl\.jaas|access\.?key", re.IGNORECASE)


def public(text: str) -> str:
    """Without the user and password of a URL, and without what follows the name of a database."""
    text = _CREDENTIALS.sub("", text)
    return re.split(r"[?;]", text, maxsplit=1)[0] if text.startswith("jdbc:") else text


def is_secret_name(name: str) -> bool:
    """Of an option whose value nobody should see."""
    return _SECRET_NAME.search(name) is not None
