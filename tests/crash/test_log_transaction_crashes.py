"""A log with transactions, with a power loss before every single change of the disk, and kills (F6, R1, R2, KIP-98).

Wherever the log ends then, its producers, its open and its aborted transactions are exactly those that a log that
nothing happened to had when it ended there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from flintmq.records.compression import Codec
from flintmq.settings import TopicConfig
from flintmq.storage.aborted_transactions import AbortedTransaction
from support.log.life import TRANSACTIONAL_PRODUCERS, LogLife

A, B = TRANSACTIONAL_PRODUCERS
PLAIN = 1
NEVER = 1 << 30
FLUSHES = {"synced at once": 1, "synced later": NEVER}


class Known(NamedTuple):
    """What a log knows of transactions."""

    first_open: int | None
    aborted: list[AbortedTransaction]
    producers: bytes


def known(life: LogLife) -> Known:
    log = life.log
    return Known(
        log.producers.first_unstable_offset,
        [one for segment in log.segments for one in segment.aborted],
        log.producers.encode(),
    )


def first_half(life: LogLife) -> Iterator[None]:
    """Transactions that begin in one segment and end in another, over four of them."""
    for number in range(5):
        for producer_id in (A, PLAIN, B):
            pairs = [(b"key", b"%d" % number + bytes(60))]
            life.append(pairs, producer_id=producer_id, age_ms=0, codec=Codec.NONE)
            yield
        life.wait(0)
        if number % 2:
            life.end_transaction(A, commit=False, bumps_epoch=True)
            yield
        if number == 2:
            life.checkpoint()
            life.wait(0)
    life.end_transaction(B, commit=False, bumps_epoch=False)
    yield


def second_half(life: LogLife) -> Iterator[None]:
    """After a stop: goes on in a segment whose index files the stop has written."""
    for commit in (False, True, False):
        for producer_id in (A, B, -1):
            life.append([(b"key", bytes(40))], producer_id=producer_id, age_ms=0, codec=Codec.NONE)
            yield
        life.end_transaction(A, commit=commit, bumps_epoch=False)
        yield
        life.wait(0)
    life.end_transaction(B, commit=False, bumps_epoch=True)
    yield
    life.checkpoint()
    life.wait(0)


def config(flush_messages: int) -> TopicConfig:
    return TopicConfig(segment_bytes=600, index_interval_bytes=150, flush_messages=flush_messages)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every crash is logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module", params=FLUSHES.values(), ids=list(FLUSHES))
def undisturbed(request: pytest.FixtureRequest) -> tuple[int, dict[int, Known]]:
    """By where the log ended."""
    life = LogLife(config(request.param), seed=1)
    story = {0: known(life)}
    for _ in first_half(life):
        story[life.log.end_offset] = known(life)
    life.stop()
    for _ in second_half(life):
        story[life.log.end_offset] = known(life)
    assert len(life.log.segments) > 4
    assert len(known(life).aborted) == 6
    life.end()
    return request.param, story


def crashed(flush_messages: int, changes: int, *, power: bool, after_stop: bool) -> LogLife | None:
    """The log as it is found; None if there are not so many changes."""
    life = LogLife(config(flush_messages), seed=1)
    if after_stop:
        for _ in first_half(life):
            pass
        life.stop()
    life.arm(changes, power=power)
    for _ in second_half(life) if after_stop else first_half(life):
        pass
    if not life.has_crashed:
        life.end()
        return None
    life.settle()
    return life


@pytest.mark.parametrize(("power", "stride"), [(True, 1), (False, 5)], ids=["power is lost", "killed"])
@pytest.mark.parametrize("after_stop", [False, True], ids=["in a first life", "in a second life"])
def test_what_is_known_of_transactions_is_what_it_was(
    undisturbed: tuple[int, dict[int, Known]], power: bool, stride: int, after_stop: bool
) -> None:
    flush_messages, story = undisturbed
    changes, ends = 1, set()
    while (life := crashed(flush_messages, changes, power=power, after_stop=after_stop)) is not None:
        assert known(life) == story[life.log.end_offset], f"crashed before change {changes}"
        ends.add(life.log.end_offset)
        # And so it is once more, from what that start has left.
        life.crash(power=power)
        assert known(life) == story[life.log.end_offset], f"crashed again after change {changes}"
        life.end()
        changes += stride
    assert changes > 30
    assert len(ends) > (1 if power and flush_messages == NEVER else 4)
