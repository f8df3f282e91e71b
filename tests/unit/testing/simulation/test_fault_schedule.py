"""Schedules of faults: made from a seed, shrunk to what is needed, printed as what makes them again."""

from __future__ import annotations

from flintmq.testing.simulation import fault_schedule
from flintmq.testing.simulation.fault_schedule import (
    CutPower,
    FailDisk,
    FillDisk,
    KillBroker,
    PauseBroker,
    Schedule,
    ScheduledFault,
    random_schedule,
    shrink,
)
from flintmq.testing.simulation.store import TxnFault

_KILLS = tuple(KillBroker(at_s=float(n), node=n % 3 + 1, down_s=1.0) for n in range(6))
_PAUSE = PauseBroker(at_s=2.5, node=1, for_s=5.0)


def test_a_schedule_is_that_of_its_seed() -> None:
    def schedule(seed: int) -> Schedule:
        return random_schedule(seed, brokers=[1, 2, 3], duration_s=30, count=8)

    assert schedule(1) == schedule(1) != schedule(2)
    assert len(schedule(1)) == 8
    assert [fault.at_s for fault in schedule(1)] == sorted(fault.at_s for fault in schedule(1))


def test_every_kind_of_fault_comes_in_time() -> None:
    seen = {
        type(fault) for seed in range(60) for fault in random_schedule(seed, brokers=[1, 2, 3], duration_s=9)
    }
    kinds = {
        value
        for value in vars(fault_schedule).values()
        if isinstance(value, type) and issubclass(value, ScheduledFault) and value is not ScheduledFault
    }
    assert seen == kinds
    safe = {
        type(fault)
        for seed in range(60)
        for fault in random_schedule(seed, brokers=[1], duration_s=9, power=False, disk=False)
    }
    assert safe == kinds - {CutPower, FillDisk, FailDisk}


def test_shrinking_leaves_what_is_needed_and_nothing_else() -> None:
    schedule: Schedule = (*_KILLS[:3], _PAUSE, *_KILLS[3:])
    tried = 0

    def fails(faults: Schedule) -> bool:
        nonlocal tried
        tried += 1
        return _PAUSE in faults and _KILLS[4] in faults

    assert shrink(schedule, fails) == (_PAUSE, _KILLS[4])
    assert tried < 40
    assert shrink(schedule, lambda faults: True) == ()
    assert shrink(schedule, lambda faults: False) == schedule


def test_a_printed_schedule_can_be_pasted() -> None:
    names = {name: getattr(fault_schedule, name) for name in dir(fault_schedule)}
    for seed in range(20):
        schedule = random_schedule(seed, brokers=[1, 2], duration_s=30)
        text = repr(schedule)
        for fault in TxnFault:
            text = text.replace(repr(fault), str(fault))
        assert eval(text, {**names, "TxnFault": TxnFault}) == schedule
