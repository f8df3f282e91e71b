"""Rates as Kafka measures them, with a clock in the test's hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.security.quotas.rate import THROTTLE_MS_MAX, UNLIMITED, SampledRate, TokenBucket

SAMPLES, SIZE_S = 11, 1.0


@dataclass
class Sample:
    start: float
    last: float
    value: float = 0.0


@dataclass
class PlainRate:
    """The same by looking at every sample every time, as `SampledStat` and `Rate` of Kafka do."""

    samples_max: int
    size_s: float
    samples: list[Sample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now: float) -> None:
        sample = self.samples[self.current]
        if now - sample.start >= self.size_s:
            self.current = (self.current + 1) % (self.samples_max + 1)
            sample = Sample(now, now)
            if self.current == len(self.samples):
                self.samples.append(sample)
            else:
                self.samples[self.current] = sample
        sample.value += value
        sample.last = now

    def throttle_ms(self, limit: float, now: float) -> int:
        for at, sample in enumerate(self.samples):
            if now - sample.last >= self.samples_max * self.size_s:
                self.samples[at] = Sample(now, now)
        elapsed = now - min(sample.start for sample in self.samples)
        full = int(elapsed / self.size_s)
        if full < self.samples_max - 1:
            elapsed += (self.samples_max - 1 - full) * self.size_s
        elapsed = max(elapsed, 0.001)
        rate = sum(sample.value for sample in self.samples) / elapsed
        return round((rate - limit) / limit * elapsed * 1000) if rate > limit else 0


@given(
    st.integers(min_value=1, max_value=5),
    st.lists(st.tuples(st.integers(min_value=0, max_value=400), st.integers(0, 64)), max_size=60),
)
def test_a_rate_is_that_of_kafkas_samples(samples: int, steps: list[tuple[int, int]]) -> None:
    """Times are hundredths of a second that have exact floats, so that both come to the same windows."""
    now = 1024.0
    rate = SampledRate(8.0, samples, SIZE_S, now)
    plain = PlainRate(samples, SIZE_S, [Sample(now, now)])
    for waited, value in steps:
        now += waited / 64
        rate.record(value, now)
        plain.record(value, now)
        # The same formula in another order: a half may be rounded differently.
        assert abs(rate.throttle_ms(now) - plain.throttle_ms(8.0, now)) <= 1


def test_a_burst_of_ten_windows_is_free_and_what_exceeds_it_is_waited_for() -> None:
    rate = SampledRate(100.0, SAMPLES, SIZE_S, 0.0)
    rate.record(1000, 0.0)
    assert rate.throttle_ms(0.0) == 0
    rate.record(50, 0.0)
    assert rate.throttle_ms(0.0) == 500
    assert rate.throttle_ms(0.5) == 0


@pytest.mark.parametrize("value", [1.0, 30.0, 500.0, 5000.0])
def test_a_client_that_waits_as_it_is_told_has_the_rate_of_its_quota(value: float) -> None:
    rate, now, sent = SampledRate(1000.0, SAMPLES, SIZE_S, 0.0), 0.0, 0.0
    while now < 300:
        rate.record(value, now)
        sent += value
        now += max(0.001, rate.throttle_ms(now) / 1000)
    # All but the burst at the beginning.
    assert (sent - 10_000) / now == pytest.approx(1000, rel=0.05)


def test_a_rate_is_as_good_as_new_after_its_windows() -> None:
    rate = SampledRate(1.0, SAMPLES, SIZE_S, 0.0)
    rate.record(1_000_000, 0.0)
    assert rate.throttle_ms(10.9) > 0
    assert rate.throttle_ms(11.0) == 0
    assert rate.total == 0


def test_what_was_recorded_can_be_taken_back() -> None:
    rate = SampledRate(10.0, SAMPLES, SIZE_S, 0.0)
    rate.record(1000, 5.0)
    assert rate.throttle_ms(5.0) > 0
    rate.record(-1000, 5.0)
    assert rate.throttle_ms(5.0) == 0


def test_a_throttle_time_has_a_bound() -> None:
    rate = SampledRate(1.0, SAMPLES, SIZE_S, 0.0, throttle_s_max=1.0)
    rate.record(1_000_000, 0.0)
    assert rate.throttle_ms(0.0) == 1000
    unbounded = SampledRate(1e-9, SAMPLES, SIZE_S, 0.0)
    unbounded.record(1 << 40, 0.0)
    assert unbounded.throttle_ms(0.0) == THROTTLE_MS_MAX


def test_a_limit_that_is_lifted_holds_for_the_rate_in_use() -> None:
    rate = SampledRate(1.0, SAMPLES, SIZE_S, 0.0)
    rate.record(1_000_000, 0.0)
    rate.limit = UNLIMITED
    assert rate.throttle_ms(0.0) == 0


def test_a_bucket_begins_full_and_pays_its_debt_at_its_rate() -> None:
    """KIP-599: 2 a second over 11 windows of a second are 22 at once."""
    bucket = TokenBucket(2.0, SAMPLES, SIZE_S, 0.0)
    bucket.take(22, 0.0)
    assert bucket.throttle_ms(0.0) == 0
    bucket.take(3, 0.0)
    assert bucket.throttle_ms(0.0) == 1500
    assert bucket.throttle_ms(1.0) == 500
    assert bucket.throttle_ms(1.5) == 0


def test_a_bucket_is_never_more_than_full() -> None:
    bucket = TokenBucket(2.0, SAMPLES, SIZE_S, 0.0)
    bucket.take(1, 0.0)
    bucket.take(23, 1_000_000.0)
    assert bucket.throttle_ms(1_000_000.0) == 500


def test_a_bucket_without_a_limit_has_no_debt() -> None:
    bucket = TokenBucket(2.0, SAMPLES, SIZE_S, 0.0)
    bucket.take(100, 0.0)
    bucket.limit = UNLIMITED
    assert bucket.throttle_ms(0.0) == 0
