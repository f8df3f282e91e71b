"""Topic ids: sixteen bytes, written as Kafka does in URL-safe base64 without padding. Pure."""

from __future__ import annotations

import base64
import binascii

ZERO_UUID = bytes(16)


def encode_uuid(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes | None:
    """None if `text` is not an id."""
    try:
        value = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return value if len(value) == 16 else None


def to_canonical(value: bytes) -> str:
    """Sixteen bytes as a random UUID in its long form, as member ids end."""
    text = bytes((*value[:6], value[6] & 0x0F | 0x40, value[7], value[8] & 0x3F | 0x80, *value[9:])).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
