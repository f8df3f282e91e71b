"""The headers in front of every request and response, written by hand because every request pays for them.

A request's header has tagged fields when the request's own version is flexible, which is why the key and
version must be read before the header's form is known. The client id keeps its old form in all versions.
"""

from __future__ import annotations

import struct
from typing import Final

from flintmq.effects import Buffer
from flintmq.errors import ProtocolError
from flintmq.protocol.codegen.schema import NOT_FLEXIBLE, definitions
from flintmq.protocol.primitives import MalformedError, skip_tags

API_VERSIONS_KEY: Final = 18
FIRST_OWN_KEY: Final = 15_000
"""FlintMQ's own requests have keys from here on, far above Kafka's. ApiVersions does not tell of them, for clients
were written for the keys that Kafka has; whoever sends one to another broker finds the connection closed."""

FIRST_FLEXIBLE: Final = definitions().first_flexible_versions()
"""By api key. A key that is not in here is no request that we know of."""

_FIRST_FLEXIBLE_RESPONSE: Final = {**FIRST_FLEXIBLE, API_VERSIONS_KEY: NOT_FLEXIBLE}

_read_fixed: Final = struct.Struct(">hhih").unpack_from
_FIXED_SIZE: Final = 10
_write_response: Final = struct.Struct(">i").pack
_write_flexible_response: Final = struct.Struct(">ix").pack


def parse_request_header(buffer: Buffer, position: int, end: int) -> tuple[int, int, int, str | None, int]:
    """Key, version, correlation id, client id and the position of the body, of a request that ends at `end`.

    The version may be one that is not served. A client id that is not UTF-8 is read with replacement
    characters, since it only labels.
    """
    api_key: int
    api_version: int
    correlation_id: int
    size: int
    body = position + _FIXED_SIZE
    if body > end:
        raise ProtocolError("a request too short for its header")
    try:
        api_key, api_version, correlation_id, size = _read_fixed(buffer, position)
        flexible = api_version >= FIRST_FLEXIBLE[api_key]
        client_id = None
        if size >= 0:
            client_id = str(buffer[body : body + size], "utf-8", "replace")
            body += size
        elif size != -1:
            raise ProtocolError("a request header whose client id has a negative length")
        if flexible:
            tags = buffer[body]
            body += 1
            if tags:
                body = skip_tags(buffer, body, tags, end)
    except KeyError:
        raise ProtocolError(f"no request has the api key {api_key}") from None
    except (struct.error, IndexError):
        raise ProtocolError("a request too short for its header") from None
    except (MalformedError, OverflowError) as error:
        raise ProtocolError(f"the tagged fields of a request header: {error}") from error
    if body > end:
        raise ProtocolError("a request too short for its header")
    return api_key, api_version, correlation_id, client_id, body


def response_header(correlation_id: int, flexible: bool) -> bytes:
    """`flexible` as `response_is_flexible` tells it."""
    return _write_flexible_response(correlation_id) if flexible else _write_response(correlation_id)


def response_is_flexible(api_key: int, api_version: int) -> bool:
    """Whether the response's header has tagged fields.

    That of ApiVersions never has (KIP-511): its reader may not know the version that it is answered in.
    """
    return api_version >= _FIRST_FLEXIBLE_RESPONSE[api_key]
