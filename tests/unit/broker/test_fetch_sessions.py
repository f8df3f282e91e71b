"""Fetch sessions (KIP-227), with topic ids (KIP-516)."""

from __future__ import annotations

from flintmq.broker.fetch_sessions import (
    EVICTION_IDLE_S,
    FINAL_EPOCH,
    FetchContext,
    FetchPartition,
    FetchSessions,
)
from flintmq.errors import ErrorCode
from flintmq.protocol.fetch import FetchedPartition
from flintmq.protocol.messages import FetchRequest
from flintmq.testing.simulation import SimulatedRandom

BY_NAME, BY_ID = 12, 13


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


class Records:
    size = 10

    def read(self) -> bytes:
        return bytes(self.size)


def new_sessions(slots: int = 10, clock: Clock | None = None) -> FetchSessions:
    return FetchSessions(clock=clock or Clock(), random=SimulatedRandom(3), slots=slots)


def request(
    session_id: int = 0,
    epoch: int = 0,
    *,
    offsets: dict[int, int] | None = None,
    forgotten: list[int] | None = None,
    by_id: bool = False,
) -> FetchRequest:
    """A fetch of partitions of one topic, at these offsets."""
    made = FetchRequest(session_id=session_id, session_epoch=epoch)
    topic_id = b"i" * 16 if by_id else bytes(16)
    if offsets:
        made.topics = [
            FetchRequest.FetchTopic(
                topic="" if by_id else "t",
                topic_id=topic_id,
                partitions=[
                    FetchRequest.FetchPartition(partition=index, fetch_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
        ]
    if forgotten:
        made.forgotten_topics_data = [
            FetchRequest.ForgottenTopic(topic="" if by_id else "t", topic_id=topic_id, partitions=forgotten)
        ]
    return made


def wanted(context: FetchContext) -> dict[int, int]:
    return {one.partition: one.fetch_offset for one in context.wanted}


def test_a_request_without_a_session_wants_everything_it_names() -> None:
    sessions = new_sessions()
    context = sessions.context(request(0, FINAL_EPOCH, offsets={0: 5, 1: 6}), BY_NAME)
    assert (wanted(context), context.session_id, context.error) == ({0: 5, 1: 6}, 0, ErrorCode.NONE)
    assert len(sessions) == 0


def test_an_incremental_request_names_only_what_changed() -> None:
    sessions = new_sessions()
    first = sessions.context(request(offsets={0: 0, 1: 0}), BY_NAME)
    assert first.session_id != 0
    assert not first.incremental
    second = sessions.context(request(first.session_id, 1, offsets={1: 7}), BY_NAME)
    assert (wanted(second), second.incremental) == ({0: 0, 1: 7}, True)
    third = sessions.context(request(first.session_id, 2, offsets={2: 9}, forgotten=[0]), BY_NAME)
    assert wanted(third) == {1: 7, 2: 9}
    fourth = sessions.context(request(first.session_id, 3), BY_NAME)
    assert wanted(fourth) == {1: 7, 2: 9}


def test_what_is_wanted_and_forgotten_at_once_is_forgotten() -> None:
    sessions = new_sessions()
    session_id = sessions.context(request(offsets={0: 0, 1: 0}), BY_NAME).session_id
    context = sessions.context(request(session_id, 1, offsets={0: 4}, forgotten=[0]), BY_NAME)
    assert wanted(context) == {1: 0}


def test_an_unknown_session_is_refused() -> None:
    context = new_sessions().context(request(99, 1), BY_NAME)
    assert (context.error, context.session_id, context.wanted) == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        0,
        [],
    )


def test_a_wrong_epoch_is_refused_and_the_session_stays() -> None:
    sessions = new_sessions()
    session_id = sessions.context(request(offsets={0: 0}), BY_NAME).session_id
    assert sessions.context(request(session_id, 5), BY_NAME).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.context(request(session_id, 1), BY_NAME).error is ErrorCode.NONE
    # The same epoch again: a request that was sent twice.
    assert sessions.context(request(session_id, 1), BY_NAME).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_keeps_to_names_or_to_ids() -> None:
    sessions = new_sessions()
    session_id = sessions.context(request(offsets={0: 0}, by_id=True), BY_ID).session_id
    error = sessions.context(request(session_id, 1), BY_NAME).error
    assert error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.context(request(session_id, 1, by_id=True), BY_ID).error is ErrorCode.NONE


def test_epoch_0_with_an_id_replaces_the_session_and_the_final_epoch_ends_it() -> None:
    sessions = new_sessions()
    old = sessions.context(request(offsets={0: 0}), BY_NAME).session_id
    new = sessions.context(request(old, 0, offsets={1: 0}), BY_NAME).session_id
    assert new not in (0, old)
    assert sessions.context(request(old, 1), BY_NAME).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    last = sessions.context(request(new, FINAL_EPOCH, offsets={1: 3}), BY_NAME)
    assert (wanted(last), last.session_id, len(sessions)) == ({1: 3}, 0, 0)


def test_the_epoch_wraps_to_1() -> None:
    sessions = new_sessions()
    context = sessions.context(request(offsets={0: 0}), BY_NAME)
    assert context.session is not None
    context.session.epoch = 2**31 - 1
    assert sessions.context(request(context.session_id, 2**31 - 1), BY_NAME).error is ErrorCode.NONE
    assert sessions.context(request(context.session_id, 1), BY_NAME).error is ErrorCode.NONE


def test_without_a_free_slot_a_client_gets_no_session_but_its_records() -> None:
    sessions = new_sessions(slots=1)
    sessions.context(request(offsets={0: 0}), BY_NAME)
    refused = sessions.context(request(offsets={0: 8}), BY_NAME)
    assert (refused.session_id, wanted(refused)) == (0, {0: 8})
    assert new_sessions(slots=0).context(request(offsets={0: 0}), BY_NAME).session_id == 0


def test_the_session_idle_longest_makes_room_once_it_is_idle_long_enough() -> None:
    clock = Clock()
    sessions = new_sessions(2, clock)
    idle = sessions.context(request(offsets={0: 0}), BY_NAME).session_id
    busy = sessions.context(request(offsets={0: 0}), BY_NAME).session_id
    clock.now_s = EVICTION_IDLE_S
    sessions.context(request(busy, 1), BY_NAME)
    assert sessions.context(request(offsets={0: 0}), BY_NAME).session_id != 0
    assert sessions.context(request(idle, 1), BY_NAME).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.context(request(busy, 2), BY_NAME).error is ErrorCode.NONE


def is_news(one: FetchPartition, result: FetchedPartition) -> bool:
    """Whether an incremental response needs this result; the client knows it then."""
    differs = one.differs_from(result)
    if differs:
        one.remember(result)
    return differs


def test_only_news_are_told() -> None:
    sessions = new_sessions()
    one = sessions.context(request(offsets={0: 0}), BY_NAME).wanted[0]
    quiet = FetchedPartition(0, 0, high_watermark=5, start_offset=0)
    assert is_news(one, quiet)
    assert not is_news(one, quiet)
    assert is_news(one, quiet._replace(high_watermark=6))
    assert is_news(one, quiet._replace(high_watermark=6, start_offset=2))
    assert is_news(one, quiet._replace(high_watermark=6, start_offset=2, records=Records()))
    assert not is_news(one, quiet._replace(high_watermark=6, start_offset=2))
    assert is_news(one, quiet._replace(high_watermark=6, start_offset=2, diverging=(1, 2)))


def test_an_error_is_told_and_so_is_its_end() -> None:
    sessions = new_sessions()
    one = sessions.context(request(offsets={0: 0}), BY_NAME).wanted[0]
    fine = FetchedPartition(0, 0, high_watermark=5, start_offset=0)
    is_news(one, fine)
    assert is_news(one, FetchedPartition(0, ErrorCode.KAFKA_STORAGE_ERROR))
    assert is_news(one, fine)


def test_a_follower_that_diverged_gets_the_high_watermark_with_its_next_fetch() -> None:
    """KIP-595: it takes nothing else from a response that diverges, and an idle partition has no other news."""
    one = new_sessions().context(request(offsets={0: 0}), BY_NAME).wanted[0]
    fine = FetchedPartition(0, 0, high_watermark=5, start_offset=0)
    assert is_news(one, fine._replace(diverging=(1, 2)))
    assert is_news(one, fine)
    assert not is_news(one, fine)


def test_partitions_that_were_served_go_to_the_end_of_the_queue() -> None:
    sessions = new_sessions()
    context = sessions.context(request(offsets={0: 0, 1: 0, 2: 0}), BY_NAME)
    assert context.session is not None
    context.session.served(context.wanted[:1])
    following = sessions.context(request(context.session_id, 1), BY_NAME)
    assert [one.partition for one in following.wanted] == [1, 2, 0]


def test_sessions_keep_no_names_that_no_topic_can_have() -> None:
    sessions = new_sessions()
    long = request(offsets={0: 1})
    long.topics[0].topic = "t" * 32_000
    context = sessions.context(long, BY_NAME)
    assert (wanted(context), context.session_id, len(sessions)) == ({0: 1}, 0, 0)
    session_id = sessions.context(request(offsets={0: 1}), BY_NAME).session_id
    long.session_id, long.session_epoch = session_id, 1
    assert sessions.context(long, BY_NAME).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partitions) == (0, 0)
