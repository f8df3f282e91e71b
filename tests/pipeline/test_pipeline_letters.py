"""Dead letters are published once for each checkpoint, whoever asks again."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.client.addresses import parse_addresses
from flintmq.pipeline.dead_letters import Publisher
from flintmq.pipeline.originals import InTheirTopics
from flintmq.pipeline.staging import Dead
from flintmq.spark.options import SourceOptions
from flintmq.spark.options import Topics as Chosen
from support.broker_process import BrokerProcess
from support.pipelines import as_records, records_of
from support.spark_topics import Topics


def _publisher(broker: BrokerProcess, topics: Topics, topic: str, checkpoint: str) -> Publisher:
    options = SourceOptions(tuple(parse_addresses(broker.address)), Chosen(), ())
    return Publisher(
        topics.client,
        f"{topic}.dead",
        pipeline=topic,
        checkpoint=checkpoint,
        run="",
        originals=InTheirTopics(topics.client, options),
    )


def test_a_new_checkpoint_publishes_what_another_has_not(
    broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.create(f"{topic}.dead")
    topics.write(topic, as_records({"id": number} for number in range(10)))
    last = [Dead(topic, 0, 9, "good", "amount >= 0")]
    first = _publisher(broker, topics, topic, "one")
    assert first.publish(last) == 1
    # A batch that is run again, also by another process.
    assert first.publish(last) == 0
    assert _publisher(broker, topics, topic, "one").publish(last) == 0

    # Another checkpoint reads from the start, and judges by another condition.
    more = [Dead(topic, 0, offset, "good", "amount >= 5") for offset in (0, 1, 2, 3, 4, 9)]
    second = _publisher(broker, topics, topic, "two")
    assert second.publish(more) == 6
    assert second.publish(more) == 0
    assert first.publish(last) == 0
    told = [int(one.told("offset")) for one in records_of(broker.address, f"{topic}.dead")]
    assert told == [9, 0, 1, 2, 3, 4, 9]
