"""Steps in the life of a replica's log, beside those of any log. Hypothesis chooses their order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from flintmq.records.compression import Codec
from flintmq.settings import TopicConfig
from support.log.machine import CONFIGS, KEYS, PAIRS, TransactionalLogMachine
from support.log.replica import ReplicaLife


class ReplicaMachine(TransactionalLogMachine):
    life: ReplicaLife

    @initialize(config=CONFIGS, seed=st.integers(0, 1 << 16), dedupe_bytes=st.sampled_from([140, 1 << 20]))
    def begin(self, config: TopicConfig, seed: int, dedupe_bytes: int) -> None:
        self.life = ReplicaLife(config, seed=seed, dedupe_bytes=dedupe_bytes)

    @rule(share=st.sampled_from([0.3, 0.7, 1.0, 1.0]))
    def advance(self, share: float) -> None:
        self.life.advance(share)
        self.life.settle()

    @rule()
    def lead(self) -> None:
        self.life.lead()
        self.life.settle()

    @rule(gap=st.sampled_from([0, 0, 3, 40]))
    def follow(self, gap: int) -> None:
        if self.life.log.truncation is None:
            self.life.follow()
            self.life.gap = gap
        self.life.settle()

    @rule(count=st.integers(2, 10), gap=st.sampled_from([0, 0, 5]), producer_id=st.sampled_from([-1, 1, 2, 3]),
          ends=st.booleans())  # fmt: skip
    def take_over_many(self, count: int, gap: int, producer_id: int, ends: bool) -> None:
        """What one fetch brings, over some segments."""
        life = self.life
        life.hold()
        for number in range(count):
            life.gap = gap if number % 3 == 1 and life.is_following else 0
            pairs = [(KEYS[number % len(KEYS)], b"%d" % number + bytes(40))]
            life.append(pairs, producer_id=producer_id, age_ms=0, codec=Codec.NONE)
        if ends and producer_id == 3:
            life.end_transaction(producer_id, commit=count % 2 == 0, bumps_epoch=True)
        life.release()
        life.settle()

    @rule(share=st.floats(0, 1), wait=st.booleans(), changes=st.sampled_from([0, 0, *range(1, 25)]),
          power=st.booleans(), again=st.integers(0, 12))  # fmt: skip
    def truncate(self, share: float, wait: bool, changes: int, power: bool, again: int) -> None:
        """Cut off what is not committed; perhaps a crash comes meanwhile, and another in the recovery."""
        life = self.life
        log = life.log
        if changes:
            life.arm(changes, power=power)
        life.truncate(log.high_watermark + int((log.end_offset - log.high_watermark) * share), wait=wait)
        life.settle(then_arm=again)

    @rule(share=st.floats(0, 1), wait=st.booleans())
    def truncate_what_was_seen(self, share: float, wait: bool) -> None:
        """As after an unclean election."""
        life = self.life
        life.truncate(int(life.log.end_offset * share), wait=wait)
        life.settle()

    @rule(
        beyond=st.sampled_from([-4, 0, 1, 70]),
        wait=st.booleans(),
        changes=st.integers(0, 25),
        power=st.booleans(),
    )
    def restart(self, beyond: int, wait: bool, changes: int, power: bool) -> None:
        life = self.life
        if changes:
            life.arm(changes, power=power)
        life.restart(max(0, life.log.end_offset + beyond), wait=wait)
        life.settle()

    @rule(pairs=PAIRS, wait=st.booleans(), share=st.floats(0, 1))
    def truncate_and_grow(
        self, pairs: list[tuple[bytes | None, bytes | None]], wait: bool, share: float
    ) -> None:
        """Other records take the offsets of those that were cut off."""
        life = self.life
        log = life.log
        life.truncate(log.high_watermark + int((log.end_offset - log.high_watermark) * share), wait=True)
        for number in range(3):
            life.append(pairs, producer_id=1 + number % 2, age_ms=0, codec=Codec.NONE)
        if wait:
            life.wait(0)
        life.settle()

    @rule(
        count=st.integers(2, 8),
        share=st.floats(0, 1, exclude_max=True),
        steps=st.integers(0, 6),
        grown=st.integers(0, 10),
        power=st.booleans(),
    )
    def truncate_while_flushing(self, count: int, share: float, steps: int, grown: int, power: bool) -> None:
        """A flush of what is cut off ends late, when other records are there, and then a crash comes."""
        life = self.life
        pairs: list[tuple[bytes | None, bytes | None]] = [(KEYS[0], bytes(30))]
        for _ in range(count):
            life.append(pairs, producer_id=1, age_ms=0, codec=Codec.NONE)
        log = life.log
        life.partition.flush(lambda error: None)
        life.truncate(log.high_watermark + int((log.end_offset - log.high_watermark) * share), wait=True)
        for _ in range(grown):
            life.append(pairs, producer_id=2, age_ms=0, codec=Codec.NONE)
        life.step(steps)
        life.checkpoint()
        life.step(4)
        life.settle()
        if power:
            life.crash(power=True)
