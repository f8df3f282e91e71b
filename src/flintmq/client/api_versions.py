"""Which version of each request to speak with a broker (KIP-35, KIP-511). Pure.

A broker that does not know the version of an ApiVersions request answers in version 0, with
UNSUPPORTED_VERSION and its list: whoever decodes the answer must look at the error code first.
"""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.effects import Buffer
from flintmq.errors import ErrorCode, UnsupportedVersion
from flintmq.protocol.codec import decode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import FIRST_OWN_KEY
from flintmq.protocol.messages import ApiVersionsRequest, ApiVersionsResponse


class ServedVersions:
    """What one broker serves."""

    def __init__(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        self._ranges = dict(ranges)

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> ServedVersions:
        return cls({one.api_key: (one.min_version, one.max_version) for one in response.api_keys})

    def __contains__(self, request: type[Message]) -> bool:
        return request.api_key in self._ranges

    def __len__(self) -> int:
        return len(self._ranges)

    def choose(self, request: type[Message], *, highest: int | None = None) -> int:
        """The highest version that both sides know, and not above `highest`.

        FlintMQ's own requests are never listed: a broker that does not know them closes the connection.
        """
        if request.api_key >= FIRST_OWN_KEY:
            return request.versions[1]
        name = request.__name__.removesuffix("Request")
        try:
            lowest, top = self._ranges[request.api_key]
        except KeyError:
            raise UnsupportedVersion(f"the broker does not know {name}") from None
        own_lowest, own_top = request.versions
        chosen = min(top, own_top) if highest is None else min(top, own_top, highest)
        if chosen < max(lowest, own_lowest):
            raise UnsupportedVersion(
                f"the broker serves {name} in versions {lowest} to {top}, this client in {own_lowest} to {own_top}"
            )
        return chosen


def decode_api_versions(buffer: Buffer, version: int, position: int) -> ApiVersionsResponse:
    """The answer to an ApiVersions request of `version`, in whichever version it came."""
    error_code = int.from_bytes(buffer[position : position + 2], "big", signed=True)
    if error_code == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    return decode(ApiVersionsResponse, buffer, version, position)[0]


def next_attempt(response: ApiVersionsResponse, tried: int) -> int | None:
    """After an answer to version `tried`: the version to try now, or None if the answer stands.

    A broker too old even to list ApiVersions is asked in version 0, once.
    """
    if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
        return None
    served = ServedVersions.of(response)
    version = served.choose(ApiVersionsRequest, highest=tried - 1) if ApiVersionsRequest in served else 0
    if tried <= version:
        raise UnsupportedVersion("the broker refuses every version of ApiVersions")
    return version
