"""The image shows whole topics only, and says exactly what changed."""

from __future__ import annotations

import msgspec

from flintmq.metadata import keys
from flintmq.metadata.image import ClusterImage, ImageDelta
from flintmq.metadata.store import StoreItem
from flintmq.records.uuids import encode_uuid

ID, OTHER_ID = bytes(15) + b"\x07", bytes(15) + b"\x08"
STATE = keys.PartitionValue(leader=1, epoch=0, replicas=[1], isr=[1])


def change(image: ClusterImage, writes: dict[str, msgspec.Struct | None]) -> ImageDelta:
    revision = image.revision + 1
    items = {
        key: None if value is None else StoreItem(keys.encode(value), revision)
        for key, value in writes.items()
    }
    return image.apply(revision, items)


def topic(count: int, topic_id: bytes = ID) -> keys.TopicValue:
    return keys.TopicValue(id=encode_uuid(topic_id), partitions=count)


def partitions(*indexes: int, topic_id: bytes = ID) -> dict[str, msgspec.Struct | None]:
    return {keys.partition(topic_id, index): STATE for index in indexes}


def counts(image: ClusterImage) -> dict[str, int]:
    return {name: len(one.partitions) for name, one in image.topics.items()}


def test_a_topic_is_invisible_until_its_last_partition_is_there() -> None:
    image = ClusterImage()
    first = change(image, {keys.topic("t"): topic(2), **partitions(0)})
    assert counts(image) == {}
    assert (first.topics_changed, first.partitions_changed) == ([], [])
    second = change(image, partitions(1))
    assert counts(image) == {"t": 2}
    assert [one.name for one in second.topics_changed] == ["t"]
    assert [index for _, index in second.partitions_changed] == [0, 1]
    assert image.unclaimed() == []


def test_partitions_beyond_the_count_are_invisible_until_the_topics_key_counts_them() -> None:
    image = ClusterImage()
    change(image, {keys.topic("t"): topic(1), **partitions(0)})
    assert change(image, partitions(1, 2)).partitions_changed == []
    assert counts(image) == {"t": 1}
    grown = change(image, {keys.topic("t"): topic(3)})
    assert counts(image) == {"t": 3}
    assert [index for _, index in grown.partitions_changed] == [1, 2]


def test_a_growth_whose_partitions_are_missing_shows_what_was_there() -> None:
    image = ClusterImage()
    change(image, {keys.topic("t"): topic(1), **partitions(0)})
    delta = change(image, {keys.topic("t"): topic(3), **partitions(1)})
    assert (delta.topics_changed, delta.topics_deleted, counts(image)) == ([], [], {"t": 1})
    assert image.topics["t"].revision == 2, "a change of the topic compares with its key as it is"
    change(image, partitions(2))
    assert counts(image) == {"t": 3}


def test_only_the_partition_that_changed_is_reported_and_the_list_is_not_copied() -> None:
    image = ClusterImage()
    change(image, {keys.topic("t"): topic(1000), **partitions(*range(1000))})
    before = image.topics["t"].partitions
    delta = change(image, partitions(7))
    assert [(one.name, index) for one, index in delta.partitions_changed] == [("t", 7)]
    assert image.topics["t"].partitions is before
    assert before[7].revision == 2
    assert before[8].revision == 1


def test_a_partition_deleted_under_a_topic_keeps_its_last_state() -> None:
    image = ClusterImage()
    change(image, {keys.topic("t"): topic(2), **partitions(0, 1)})
    delta = change(image, {keys.partition(ID, 1): None})
    assert (delta.topics_deleted, counts(image)) == ([], {"t": 2})


def test_partitions_without_a_topic_are_unclaimed_unless_a_creation_claims_them() -> None:
    image = ClusterImage()
    claim = keys.CreatingValue(name="t", node=1, broker_epoch=5)
    change(image, {keys.creating(ID): claim, **partitions(0)})
    assert image.unclaimed() == []
    assert image.creating[ID].value == claim
    assert change(image, {keys.creating(ID): None}).unclaimed
    assert image.unclaimed() == [(ID, 0)]
    change(image, {keys.partition(ID, 0): None})
    assert image.unclaimed() == []


def test_partitions_of_a_deleted_topic_are_unclaimed_until_they_are_deleted() -> None:
    image = ClusterImage()
    change(image, {keys.topic("t"): topic(2), **partitions(0, 1)})
    delta = change(image, {keys.topic("t"): None})
    assert [one.name for one in delta.topics_deleted] == ["t"]
    assert image.unclaimed() == [(ID, 0), (ID, 1)]


def test_what_a_growth_left_is_not_unclaimed() -> None:
    image = ClusterImage()
    change(image, {keys.topic("t"): topic(1), **partitions(0)})
    change(image, partitions(1))
    assert image.unclaimed() == []
    change(image, {keys.topic("t"): None})
    assert sorted(image.unclaimed()) == [(ID, 0), (ID, 1)]


def test_a_name_taken_by_another_topic_is_deleted_and_new() -> None:
    image = ClusterImage()
    change(image, {keys.topic("t"): topic(1), **partitions(0)})
    delta = change(image, {keys.topic("t"): topic(1, OTHER_ID), **partitions(0, topic_id=OTHER_ID)})
    assert [one.id for one in delta.topics_deleted] == [ID]
    assert [one.id for one in delta.topics_changed] == [OTHER_ID]
    assert [one.id for one, _ in delta.partitions_changed] == [OTHER_ID]


def test_a_delta_from_an_older_image_has_what_differs() -> None:
    old, new = ClusterImage(), ClusterImage()
    registered = {
        keys.broker(1): keys.BrokerValue(incarnation="a"),
        keys.broker(2): keys.BrokerValue(incarnation="b"),
    }
    common: dict[str, msgspec.Struct | None] = {
        keys.topic("kept"): topic(2),
        **partitions(0, 1),
        **registered,
    }
    for image in (old, new):
        change(image, common)
    gone = {keys.topic("gone"): topic(1, OTHER_ID), **partitions(0, topic_id=OTHER_ID)}
    change(old, dict(gone))
    change(new, partitions(1))
    change(new, {keys.broker(2): None})
    delta = new.delta_from(old)
    assert [(one.name, index) for one, index in delta.partitions_changed] == [("kept", 1)]
    assert [one.name for one in delta.topics_deleted] == ["gone"]
    assert delta.brokers == [2]
    assert not delta.controller


def test_values_of_a_standalone_broker_are_those_of_earlier_versions() -> None:
    assert keys.encode(STATE) == b'{"leader":1,"epoch":0,"replicas":[1],"isr":[1]}'
    assert keys.encode(keys.DeletingValue(name="t")) == b'{"name":"t"}'
    assert keys.encode(keys.ProducerIdsValue(next=7)) == b'{"next":7}'
