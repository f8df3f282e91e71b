"""Values of the protocol's types, and what a decoder says of junk."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st

from flintmq.errors import ProtocolError
from flintmq.protocol.leader_hints import NodeEndpoint

EXAMPLES = settings(max_examples=40, deadline=None)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(max_size=200)
topic_id = st.binary(min_size=16, max_size=16)
payload = st.binary(max_size=300) | st.sampled_from((b"x" * 126, b"x" * 127, b"x" * 128, b"x" * 20_000))
leaders = st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
"""A leader and its epoch; the defaults, -1, are not written."""
endpoints = st.lists(st.builds(NodeEndpoint, int32, text, int32, st.none() | text), max_size=3)


def topics(version: int, first_ids: int) -> st.SearchStrategy[str | bytes]:
    return topic_id if version >= first_ids else text


def refusal(decode_request: Callable[[memoryview, int, int], object], junk: bytes, version: int) -> str:
    """Why it was refused, or nothing. Any other exception ends the test."""
    try:
        decode_request(memoryview(junk), 0, version)
    except ProtocolError as error:
        return str(error)
    return ""
