"""What the broker reads from an X.509 certificate itself: the subject's name and the dates of validity.

The name is written as RFC 2253 says and as Java's `X500Principal.getName()` prints it, because Kafka's principals and
mapping rules are written for that form: the last part first, nine attribute types by keyword, all others by number
with their encoded value in hexadecimal. OpenSSL verifies certificates; this module must not decide about trust.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_IDENTIFIER: Final = 0x06
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_CHARSETS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class _Element(NamedTuple):
    tag: int
    encoded: bytes
    content: bytes


class CertificateInfo(NamedTuple):
    subject: str
    """The distinguished name in RFC 2253 form; empty if the certificate has none."""
    not_before: float
    """Seconds since the epoch, like `not_after`."""
    not_after: float


def read_certificate(der: bytes) -> CertificateInfo:
    """Read one certificate; raise ValueError if the encoding is broken."""
    certificate = _one(der, _SEQUENCE)
    fields = list(_elements(_first(certificate.content, _SEQUENCE).content))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 5:
        raise ValueError("the certificate has too few fields")
    # ORDER of the encoding: serial number, signature algorithm, issuer, validity, subject.
    validity, subject = fields[3], fields[4]
    if validity.tag != _SEQUENCE or subject.tag != _SEQUENCE:
        raise ValueError("the certificate has no validity or subject")
    dates = [_time(element) for element in _elements(validity.content)]
    if len(dates) != 2:
        raise ValueError("the validity needs two dates")
    return CertificateInfo(_name(subject.content), dates[0], dates[1])


def _name(encoded: bytes) -> str:
    parts = ["+".join(_attribute(one) for one in _elements(rdn.content)) for rdn in _elements(encoded)]
    return ",".join(reversed(parts))


def _attribute(element: _Element) -> str:
    fields = list(_elements(element.content))
    if element.tag != _SEQUENCE or len(fields) != 2 or fields[0].tag != _OBJECT_IDENTIFIER:
        raise ValueError("an attribute of the name is not a type and a value")
    number = _object_identifier(fields[0].content)
    keyword, value = _KEYWORDS.get(number), fields[1]
    charset = _CHARSETS.get(value.tag)
    if keyword is None or charset is None:
        return f"{keyword or number}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode(charset, errors='replace'))}"


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    lead = len(text) - len(text.lstrip(" "))
    trail = len(text) - lead - len(inner)
    escaped = "".join("\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in inner)
    return "\\ " * lead + escaped + "\\ " * trail


def _object_identifier(content: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for at, byte in enumerate(content):
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
        elif at == len(content) - 1:
            raise ValueError("an object identifier is cut off")
    if not numbers:
        raise ValueError("an object identifier is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _time(element: _Element) -> float:
    text = element.content.decode("ascii", errors="replace")
    if element.tag == _UTC_TIME:
        # RFC 5280: two digits below 50 are years of this century.
        text = ("20" if text[:2] < "50" else "19") + text
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError("a date of the validity is no time")
    if len(text) != 15 or not text[:14].isdecimal():
        raise ValueError(f"{text!r} is not a date")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _one(data: bytes, tag: int) -> _Element:
    found = _first(data, tag)
    if len(found.encoded) != len(data):
        raise ValueError("bytes follow the certificate")
    return found


def _first(data: bytes, tag: int) -> _Element:
    found = next(_elements(data), None)
    if found is None or found.tag != tag:
        raise ValueError("this is not a certificate")
    return found


def _elements(data: bytes) -> Iterator[_Element]:
    """Split DER into its elements; raise ValueError where a length does not fit."""
    position, end = 0, len(data)
    while position < end:
        if end - position < 2:
            raise ValueError("an element is cut off")
        tag, size = data[position], data[position + 1]
        content = position + 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[content : content + count], "big")
            content += count
            if not 1 <= count <= 4:
                raise ValueError("a length is not definite")
        after = content + size
        if after > end:
            raise ValueError("an element is cut off")
        yield _Element(tag, data[position:after], data[content:after])
        position = after
