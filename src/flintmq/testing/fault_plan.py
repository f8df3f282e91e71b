"""How a request is to fail: which part of it still takes its course, and what becomes of the answer. Pure.

Without a topic the whole request fails. With one, only what it says of that topic does: the rest is handled,
and its answer is joined with the error. Metadata is always answered truly but for the topics that fail, since a
client that is told of no brokers could not go on.
"""

from __future__ import annotations

import copy
from typing import Any

from flintmq.errors import ErrorCode
from flintmq.metadata.image import ClusterImage
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import FetchRequest, MetadataRequest, MetadataResponse
from flintmq.testing.error_responses import error_response
from flintmq.testing.faults import Fail, Fault
from flintmq.testing.request_topics import is_about_all, name_of, split

TEXT = "A fault scripted by the test."
_FIRST_METADATA_CODE = 13


class FailurePlan:
    """One request that fails."""

    def __init__(self, error: Message, rest: Message | None, topic: str | None, image: ClusterImage) -> None:
        self._error = error
        self.rest = rest
        """What is to be handled though the request fails; None if nothing is."""
        self._topic = topic
        self._image = image

    def response(self, truth: Message | None) -> Message:
        """The error, in place of what a handled request was truly answered about the same."""
        if truth is None or (self._topic is None and not isinstance(truth, MetadataResponse)):
            return self._error
        for field in truth.schema.structs[truth.schema.name]:
            if not field.array or not field.struct:
                continue
            failed = getattr(self._error, field.name)
            if failed:
                true_value = getattr(truth, field.name)
                setattr(truth, field.name, [one for one in true_value if not self._fails(one)] + failed)
        if isinstance(truth, MetadataResponse) and isinstance(self._error, MetadataResponse):
            truth.error_code = self._error.error_code
        return truth

    def _fails(self, entry: Any) -> bool:
        return self._topic is None or name_of(entry, self._image) == self._topic


def plan_failure(message: Message, version: int, fault: Fault, image: ClusterImage) -> FailurePlan | None:
    """None if the request names nothing that could fail."""
    assert isinstance(fault.action, Fail)
    code = fault.action.code
    if isinstance(message, MetadataRequest):
        return _plan_metadata(message, version, code, fault.topic, image)
    failing, rest = message, None
    if fault.topic is not None:
        failing, rest = split(message, version, fault.topic, image)
        if isinstance(rest, FetchRequest):
            # The error is told at once, so the rest must not wait; and a session would hide what it names.
            rest.max_wait_ms, rest.session_id, rest.session_epoch = 0, 0, -1
    error = error_response(failing, version, code, TEXT, per_topic=rest is not None)
    return (
        None if error is None else FailurePlan(error, rest, fault.topic if rest is not None else None, image)
    )


def _plan_metadata(
    message: MetadataRequest,
    version: int,
    code: ErrorCode,
    topic: str | None,
    image: ClusterImage,
) -> FailurePlan | None:
    wants_all = is_about_all(message, version)
    named = copy.copy(message)
    if wants_all:
        named.topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in image.topics]
    rest = copy.copy(message)
    if topic is not None:
        asked = named.topics or []
        named.topics = [one for one in asked if name_of(one, image) == topic]
        if not wants_all:
            rest.topics = [one for one in asked if name_of(one, image) != topic]
    elif not wants_all:
        rest.topics = []
    if code is ErrorCode.REBOOTSTRAP_REQUIRED:
        # The one error that is about the cluster and not about a topic (KIP-1102).
        if version < _FIRST_METADATA_CODE:
            return None
        return FailurePlan(MetadataResponse(error_code=code), message, topic, image)
    if not named.topics:
        return None
    error = error_response(named, version, code, TEXT, per_topic=True)
    return None if error is None else FailurePlan(error, rest, topic, image)
