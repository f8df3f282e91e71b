"""Dead letters are published once for each checkpoint, and found again among all else that a topic may have."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.options import TopicSelection as Chosen
from flintmq.client.addresses import parse_addresses
from flintmq.pipeline.dead_letters.publisher import DeadLetterPublisher
from flintmq.pipeline.dead_letters.record_lookup import SourceTopicLookup
from flintmq.pipeline.dead_letters.source import DeadLetterSelection, DeadLetterTopicLookup
from flintmq.pipeline.dead_letters.staging import RejectedRecord
from support.broker.broker_process import BrokerProcess
from support.pipeline.pipelines import as_records, records_of
from support.spark.spark_topics import Topics


def _publisher(broker: BrokerProcess, topics: Topics, topic: str, checkpoint: str) -> DeadLetterPublisher:
    options = SourceOptions(tuple(parse_addresses(broker.address)), Chosen(), ())
    return DeadLetterPublisher(
        topics.client,
        f"{topic}.dead",
        pipeline=topic,
        checkpoint=checkpoint,
        run="",
        lookup=SourceTopicLookup(topics.client, options),
    )


def test_a_new_checkpoint_publishes_what_another_has_not(
    broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.create(f"{topic}.dead")
    topics.write(topic, as_records({"id": number} for number in range(10)))
    last = [RejectedRecord(topic, 0, 9, "good", "amount >= 0")]
    first = _publisher(broker, topics, topic, "one")
    assert first.publish(last) == 1
    # A batch that is run again, also by another process.
    assert first.publish(last) == 0
    assert _publisher(broker, topics, topic, "one").publish(last) == 0

    # Another checkpoint reads from the start, and judges by another condition.
    more = [RejectedRecord(topic, 0, offset, "good", "amount >= 5") for offset in (0, 1, 2, 3, 4, 9)]
    second = _publisher(broker, topics, topic, "two")
    assert second.publish(more) == 6
    assert second.publish(more) == 0
    assert first.publish(last) == 0
    told = [int(one.told("offset")) for one in records_of(broker.address, f"{topic}.dead")]
    assert told == [9, 0, 1, 2, 3, 4, 9]


_TOLD = {"pipeline": "p", "topic": "t", "step": "s", "partition": "0", "offset": "7"}


@pytest.mark.parametrize(
    ("headers", "admits"),
    [
        ({}, True),
        ({"checkpoint": "c"}, True),
        ({"checkpoint": "d"}, False),
        ({"replays": "q"}, True),
        ({"replays": "r,q"}, True),
        ({"replays": "r"}, False),
        ({"replays": ""}, False),
        ({"pipeline": "o"}, False),
        ({"topic": "o"}, False),
        ({"step": "o"}, False),
        ({"partition": "x"}, False),
        ({"offset": "x"}, False),
        ({"offset": ""}, False),
        ({"offset": "-1"}, False),
        ({"partition": "9" * 12}, False),
        ({"offset": "9" * 30}, False),
    ],
)
def test_a_sink_takes_the_dead_letters_that_it_has_missed(headers: dict[str, str], admits: bool) -> None:
    assert DeadLetterSelection("p", ("t",), ("s",), "c", "q").admits({**_TOLD, **headers}) == admits


def test_a_sink_that_was_never_replayed_takes_no_dead_letter_of_a_replay() -> None:
    wanted = DeadLetterSelection("p", ("t",), ("s",), "c", None)
    assert wanted.admits(_TOLD)
    assert not wanted.admits({**_TOLD, "replays": "q"})


def test_letters_are_found_among_records_that_are_none(
    broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    told = {**_TOLD, "checkpoint": "c"}
    odd = ({"offset": "x"}, {"partition": "y"}, {"offset": "9" * 30}, {"checkpoint": "d"}, {"replays": "r"})
    none = [name for name in told if name != "checkpoint"]
    letters = [told, *({**told, **one} for one in odd)]
    letters += [{name: value for name, value in told.items() if name != left_out} for left_out in none]
    records = [(None, b"%d" % at, 0, _headers(one)) for at, one in enumerate(letters)]
    topics.write(topic, records)
    options = SourceOptions(tuple(parse_addresses(broker.address)), Chosen(), ())
    finding = DeadLetterTopicLookup(topics.client, options, topic, pipeline="p", checkpoint="c")
    found = finding.find([RejectedRecord("t", 0, 7, "s", "why", queries=("q",))])
    assert [(one.value, one.offset, one.attempt) for one in found] == [(b"0", 0, 2)]


def _headers(told: dict[str, str]) -> tuple[tuple[str, bytes], ...]:
    return tuple((f"flintmq.{name}", value.encode()) for name, value in told.items())
