"""Steps in the life of a log, of which Hypothesis chooses the order. What must hold is in `support.log.checks`."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RULE_MARKER,
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flintmq.records.compression import Codec
from flintmq.settings import TopicConfig
from support.log.checks import PLENTY
from support.log.life import TRANSACTIONAL_PRODUCERS, LogLife

KEYS = [b"k%d" % number for number in range(6)]
PAIRS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(min_size=0, max_size=60))),
    min_size=1,
    max_size=3,
)
CONFIGS = st.builds(
    TopicConfig,
    cleanup_policy=st.sampled_from([("compact",), ("compact", "delete"), ("compact", "delete"), ("delete",)]),
    segment_bytes=st.sampled_from([400, 900]),
    index_interval_bytes=st.sampled_from([0, 150]),
    flush_messages=st.sampled_from([1, 1 << 30]),
    delete_retention_ms=st.sampled_from([0, 3_000]),
    min_compaction_lag_ms=st.sampled_from([0, 0, 4_000]),
    retention_ms=st.sampled_from([6_000, -1]),
    retention_bytes=st.sampled_from([-1, -1, 700]),
    preallocate=st.sampled_from([False, False, True]),
)
ACTIONS = ("nothing", "nothing", "append", "delete", "delete", "verify", "recreate", "bad folder", "full")


class LogMachine(RuleBasedStateMachine):
    life: LogLife

    @initialize(config=CONFIGS, seed=st.integers(0, 1 << 16), dedupe_bytes=st.sampled_from([140, 1 << 20]))
    def begin(self, config: TopicConfig, seed: int, dedupe_bytes: int) -> None:
        self.life = LogLife(config, seed=seed, dedupe_bytes=dedupe_bytes)

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.end()

    # ---- clients

    @rule(pairs=PAIRS, producer_id=st.sampled_from([-1, 1, 2]), age_ms=st.sampled_from([0, 0, 2_500]),
          codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]))  # fmt: skip
    def append(
        self, pairs: list[tuple[bytes | None, bytes | None]], producer_id: int, age_ms: int, codec: Codec
    ) -> None:
        self.life.append(pairs, producer_id=producer_id, age_ms=age_ms, codec=codec)
        self.life.settle()

    @rule(count=st.integers(4, 12), key=st.sampled_from(KEYS), size=st.sampled_from([0, 40]))
    def append_many(self, count: int, key: bytes, size: int) -> None:
        """Enough for some segments."""
        for number in range(count):
            pairs = [(key, b"%d" % number + bytes(size)), (KEYS[number % len(KEYS)], b"")]
            self.life.append(pairs, producer_id=1, age_ms=0, codec=Codec.NONE)
        self.life.settle()

    @precondition(lambda self: len(self.life.readings) < 3)
    @rule(share=st.floats(0, 1, exclude_max=True))
    def begin_reading(self, share: float) -> None:
        self.life.begin_reading(share)
        self.life.settle()

    @rule(age_ms=st.integers(0, 10_000))
    def look_up(self, age_ms: int) -> None:
        self.life.look_up(age_ms)
        self.life.settle()

    # ---- upkeep

    @rule()
    def roll(self) -> None:
        self.life.roll()
        self.life.settle()

    @precondition(lambda self: self.life.model.config.compacts)
    @rule(forced=st.booleans(), wait=st.booleans())
    def compact(self, forced: bool, wait: bool) -> None:
        self.life.compact(forced=forced, wait=wait)
        self.life.settle()

    @precondition(lambda self: self.life.model.config.deletes)
    @rule(wait=st.booleans())
    def retain(self, wait: bool) -> None:
        self.life.retain(wait=wait)
        self.life.settle()

    @precondition(lambda self: self.life.model.config.deletes)
    @rule(share=st.floats(0, 1), wait=st.booleans())
    def delete_records(self, share: float, wait: bool) -> None:
        self.life.delete_records(share, wait=wait)
        self.life.settle()

    @rule(wait=st.booleans())
    def verify(self, wait: bool) -> None:
        self.life.verify(wait=wait)
        self.life.settle()

    @rule()
    def checkpoint(self) -> None:
        self.life.checkpoint()
        self.life.settle()

    @rule()
    def recreate(self) -> None:
        self.life.recreate()
        self.life.settle()

    # ---- time

    @rule(count=st.integers(1, 12))
    def step(self, count: int) -> None:
        self.life.step(count)
        self.life.settle()

    @rule(seconds=st.sampled_from([0.0, 0.0, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.life.wait(seconds)
        self.life.settle()

    # ---- mishaps

    @rule(changes=st.integers(1, 40), power=st.booleans())
    def arm(self, changes: int, power: bool) -> None:
        self.life.arm(changes, power=power)

    @precondition(lambda self: self.life.model.config.compacts)
    @rule(
        written=st.integers(0, 15),
        before=st.integers(1, 70),
        action=st.sampled_from(ACTIONS),
        changes=st.integers(0, 80),
        power=st.booleans(),
        again=st.integers(0, 12),
    )
    def compact_and_be_disturbed(
        self, written: int, before: int, action: str, changes: int, power: bool, again: int
    ) -> None:
        """Something else happens at some change of the disk in a compaction, and a crash at another; perhaps one
        more while the next process recovers."""
        life = self.life
        for number in range(written):
            pairs = [(KEYS[number % 5], b"%d" % number + bytes(40)), (KEYS[5], b"")]
            life.append(pairs, producer_id=2, age_ms=0, codec=Codec.NONE)
        life.wait(0)
        life.after(before, lambda: self.disturb(action))
        life.arm(changes, power=power)
        life.compact(forced=True, wait=True)
        life.wait(0)
        life.settle(then_arm=again)

    def disturb(self, action: str) -> None:
        life = self.life
        match action:
            case "append":
                life.append([(KEYS[0], bytes(50))] * 3, producer_id=1, age_ms=0, codec=Codec.NONE)
            case "delete" if life.model.config.deletes:
                life.delete_records(0.6, wait=False)
            case "verify":
                life.verify(wait=False)
                life.append([(KEYS[1], b"")], producer_id=-1, age_ms=0, codec=Codec.NONE)
            case "recreate":
                life.recreate()
            case "bad folder":
                life.disk.fail("sync_dir")
            case "full":
                life.disk.free_bytes = 200

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        self.life.crash(power=power)

    @rule()
    def stop(self) -> None:
        self.life.stop()

    @rule(room=st.sampled_from([0, 300, 2_000, PLENTY]))
    def run_out_of_space(self, room: int) -> None:
        self.life.disk.free_bytes = room

    @rule(nth=st.integers(1, 6))
    def fail_to_sync_a_folder(self, nth: int) -> None:
        self.life.disk.fail("sync_dir", nth=nth)


class TransactionalLogMachine(LogMachine):
    """The same, with transactional producers beside the others."""

    @rule(
        pairs=PAIRS,
        producer_id=st.sampled_from(TRANSACTIONAL_PRODUCERS),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
    )
    def append_in_transaction(
        self, pairs: list[tuple[bytes | None, bytes | None]], producer_id: int, codec: Codec
    ) -> None:
        self.life.append(pairs, producer_id=producer_id, age_ms=0, codec=codec)
        self.life.settle()

    @rule(
        producer_id=st.sampled_from(TRANSACTIONAL_PRODUCERS), commit=st.booleans(), bumps_epoch=st.booleans()
    )
    def end_transaction(self, producer_id: int, commit: bool, bumps_epoch: bool) -> None:
        self.life.end_transaction(producer_id, commit=commit, bumps_epoch=bumps_epoch)
        self.life.settle()

    @rule(
        count=st.integers(2, 6),
        key=st.sampled_from(KEYS),
        outcomes=st.lists(st.booleans(), min_size=2, max_size=2),
    )
    def transact(self, count: int, key: bytes, outcomes: list[bool]) -> None:
        """Two transactions at once, over some segments, perhaps beside an older one."""
        for number in range(count):
            for producer_id in TRANSACTIONAL_PRODUCERS:
                pairs: list[tuple[bytes | None, bytes | None]] = [
                    (key, b"%d" % number + bytes(40)),
                    (KEYS[number % len(KEYS)], b""),
                ]
                self.life.append(pairs, producer_id=producer_id, age_ms=0, codec=Codec.NONE)
            self.life.append([(key, b"plain")], producer_id=1, age_ms=0, codec=Codec.NONE)
        for producer_id, commit in zip(TRANSACTIONAL_PRODUCERS, outcomes, strict=True):
            self.life.end_transaction(producer_id, commit=commit, bumps_epoch=True)
        self.life.settle()

    @precondition(lambda self: self.life.model.config.compacts)
    @rule(commit=st.booleans(), wait=st.booleans())
    def end_and_compact(self, commit: bool, wait: bool) -> None:
        """An open transaction keeps all from its first record on from being compacted."""
        for producer_id in TRANSACTIONAL_PRODUCERS:
            self.life.end_transaction(producer_id, commit=commit, bumps_epoch=True)
        self.life.compact(forced=True, wait=wait)
        self.life.settle()

    def disturb(self, action: str) -> None:
        if action == "append":
            producer_id = TRANSACTIONAL_PRODUCERS[0]
            self.life.append([(KEYS[2], bytes(50))], producer_id=producer_id, age_ms=0, codec=Codec.NONE)
            self.life.end_transaction(producer_id, commit=False, bumps_epoch=True)
        super().disturb(action)


def only(*names: str) -> type[LogMachine]:
    """Return the machine with these of its rules alone, for what is rare among all of them."""
    rules = {name for name, one in vars(LogMachine).items() if hasattr(one, RULE_MARKER)}
    assert rules >= set(names), f"no rules: {set(names) - rules}"
    return type("FewerRules", (LogMachine,), dict.fromkeys(rules - set(names)))


def explore(
    machine: type[RuleBasedStateMachine],
    examples: int,
    *,
    steps: int,
    is_random: bool = False,
    shrink: bool = True,
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not is_random,
            database=None,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
