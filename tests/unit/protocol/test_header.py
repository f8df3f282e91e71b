"""Request and response headers, in both their forms."""

from __future__ import annotations

import pytest

from flintmq.errors import ProtocolError
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.header import parse_request_header, response_header, response_is_flexible
from flintmq.protocol.messages import RequestHeader, ResponseHeader

METADATA = 3


def header(api_version: int, client_id: str | None, version: int, api_key: int = METADATA) -> bytes:
    made = RequestHeader(
        request_api_key=api_key, request_api_version=api_version, correlation_id=77, client_id=client_id
    )
    return encode(made, version)


@pytest.mark.parametrize("client_id", [None, "", "kcat", "clïent" * 50])
@pytest.mark.parametrize(("api_version", "version"), [(8, 1), (9, 2), (13, 2), (99, 2)])
def test_the_form_follows_from_key_and_version(api_version: int, version: int, client_id: str | None) -> None:
    data = b"...." + header(api_version, client_id, version)
    for buffer in (data + b"body", bytearray(data + b"body"), memoryview(bytearray(data + b"body"))):
        parsed = parse_request_header(buffer, 4, len(buffer))
        assert parsed == (METADATA, api_version, 77, client_id, len(data))


def test_tagged_fields_are_skipped() -> None:
    data = header(12, "c", 2)[:-1] + b"\x01\x00\x02hi"
    assert parse_request_header(data, 0, len(data))[4] == len(data)


@pytest.mark.parametrize("version", [1, 2])
def test_a_header_cut_short_anywhere_is_refused(version: int) -> None:
    data = header(12 if version == 2 else 5, "client", version)
    for end in range(len(data)):
        # Both when the bytes are missing, and when they belong to the next request.
        for buffer in (data[:end], data):
            with pytest.raises(ProtocolError, match="too short"):
                parse_request_header(buffer, 0, end)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(header(12, None, 2, api_key=9999), id="an unknown key"),
        pytest.param(header(12, None, 2, api_key=-1), id="a negative key"),
        pytest.param(header(0, None, 1, api_key=7), id="a key that Kafka has retired"),
        pytest.param(header(12, None, 1)[:-2] + b"\xff\xfe\x00", id="a client id of -2 bytes"),
        pytest.param(header(12, None, 1) + b"\xff\xff\xff\xff\x0f", id="2^32-1 tagged fields"),
        pytest.param(header(12, None, 1) + b"\x02\x01\x00\x01\x00", id="the same tag twice"),
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_request_header(data, 0, len(data))


def test_a_client_id_that_is_not_utf8_still_labels() -> None:
    data = header(5, "ab", 1).replace(b"ab", b"a\xff")
    assert parse_request_header(data, 0, len(data))[3] == "a\ufffd"


def test_response_headers_are_those_of_the_definitions() -> None:
    for flexible, version in ((False, 0), (True, 1)):
        data = response_header(77, flexible)
        assert decode(ResponseHeader, data, version) == (ResponseHeader(correlation_id=77), len(data))


def test_an_api_versions_response_never_has_tags_in_its_header() -> None:
    """KIP-511: the client may not know the version that it is answered in."""
    assert [response_is_flexible(18, version) for version in range(5)] == [False] * 5
    assert [response_is_flexible(METADATA, version) for version in (8, 9)] == [False, True]
