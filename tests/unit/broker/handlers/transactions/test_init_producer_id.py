"""InitProducerId for idempotence (KIP-98, KIP-360); for transactions see `test_transaction_init`."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from support.broker.single_broker import SingleBroker


def init(broker: SingleBroker, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    message = InitProducerIdRequest(**{"transactional_id": None, **fields})
    answer = broker.ask(message, InitProducerIdResponse, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_call_gives_another_id_with_epoch_zero(broker: SingleBroker, version: int) -> None:
    first, second = init(broker, version), init(broker, version)
    assert (first[0], first[2]) == (second[0], second[2]) == (0, 0)
    assert first[1] != second[1]


def test_ids_are_not_given_again_after_a_restart(broker: SingleBroker, start_broker: Any) -> None:
    given = {init(broker)[1] for _ in range(3)}
    again = start_broker(disk=broker.disk.crash())
    assert init(again)[1] not in given


def test_ids_asked_for_at_once_differ(broker: SingleBroker) -> None:
    messages = [InitProducerIdRequest(transactional_id=None) for _ in range(20)]
    answers = broker.ask_together(messages, InitProducerIdResponse, 5)
    assert len({answer.producer_id for answer in answers}) == 20


def test_a_producer_that_bumps_its_epoch_gets_a_new_id(broker: SingleBroker) -> None:
    """KIP-360; without a transactional id Kafka starts afresh too."""
    _, known, _ = init(broker)
    error, given, epoch = init(broker, producer_id=known, producer_epoch=3)
    assert (error, epoch) == (0, 0)
    assert given != known


def test_an_id_without_its_epoch_is_refused(broker: SingleBroker) -> None:
    assert init(broker, producer_id=5) == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert init(broker, producer_epoch=5) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_a_producer_without_a_transactional_id_needs_no_coordinator(broker: SingleBroker) -> None:
    """Nor does asking for one by a transactional id make it: that is what FindCoordinator is for."""
    assert init(broker)[0] == ErrorCode.NONE
    assert init(broker, transactional_id="tx")[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not broker.services.metadata.image.topics
