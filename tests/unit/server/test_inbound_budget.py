"""Memory for unfinished requests, shared by all connections."""

from __future__ import annotations

from functools import partial

import pytest

from flintmq.server.inbound_budget import NO_LIMIT, InboundBudget


class Owner:
    """Grows when it may, as a connection does."""

    def __init__(self, budget: InboundBudget, size: int = 0) -> None:
        self.budget = budget
        self.size = size
        self.resumed = 0

    def grow(self, size: int) -> bool:
        self.size = size
        return self.budget.grow(self, size, self.resume)

    def resume(self) -> None:
        self.resumed += 1
        self.grow(self.size)


def test_growing_is_charged_by_the_difference_and_given_back_whole() -> None:
    budget = InboundBudget(100)
    owner = Owner(budget)
    assert owner.grow(40)
    assert owner.grow(90)
    assert budget.used == 90
    budget.release(owner)
    assert (budget.used, budget.is_charged(owner)) == (0, False)


def test_over_the_limit_one_may_finish_and_the_others_wait_until_it_has() -> None:
    budget = InboundBudget(100)
    first, second, third = Owner(budget), Owner(budget), Owner(budget)
    assert first.grow(60)
    assert second.grow(40)
    assert second.grow(80), "the first that goes over the limit is the one that may finish"
    assert not first.grow(120)
    assert not third.grow(50)
    assert budget.is_waiting(first)
    assert not budget.is_waiting(second)
    assert second.grow(500)
    budget.release(second)
    assert (first.resumed, third.resumed) == (1, 1)
    assert not budget.is_waiting(first)
    assert budget.is_waiting(third)
    budget.release(first)
    assert third.resumed == 2
    assert not budget.is_waiting(third)


def test_those_that_wait_go_on_when_there_is_room_again() -> None:
    budget = InboundBudget(100)
    large, favoured, waiting = Owner(budget), Owner(budget), Owner(budget)
    assert large.grow(90)
    assert favoured.grow(20)
    assert not waiting.grow(30)
    budget.release(large)
    assert waiting.resumed == 1
    assert budget.used == 50


def test_one_that_goes_while_it_waits_is_forgotten() -> None:
    budget = InboundBudget(10)
    favoured, gone = Owner(budget), Owner(budget)
    assert favoured.grow(20)
    assert not gone.grow(20)
    budget.release(gone)
    budget.release(favoured)
    assert gone.resumed == 0
    assert budget.used == 0


def test_minus_one_is_no_limit() -> None:
    budget = InboundBudget(NO_LIMIT)
    assert all(Owner(budget).grow(1 << 40) for _ in range(100))


def test_a_buffer_that_is_kept_stays_charged_until_it_is_used_or_given_back() -> None:
    budget = InboundBudget(100)
    owner = Owner(budget)
    taken_back: list[Owner] = []
    assert owner.grow(60)
    budget.keep(owner, lambda: taken_back.append(owner))
    assert budget.used == 60
    budget.use(owner)
    other = Owner(budget)
    assert other.grow(60), "over the limit, but the one that may finish"
    assert taken_back == []
    budget.release(owner)
    assert budget.used == 60


def test_buffers_that_are_only_kept_are_taken_back_before_anybody_waits() -> None:
    budget = InboundBudget(100)
    first, second, third = Owner(budget), Owner(budget), Owner(budget)
    taken_back: list[Owner] = []
    for owner in (first, second):
        assert owner.grow(40)
        budget.keep(owner, partial(taken_back.append, owner))
    assert third.grow(90)
    assert (taken_back, budget.used) == ([first, second], 90)


def test_nothing_is_kept_while_somebody_waits_or_the_limit_is_passed() -> None:
    budget = InboundBudget(100)
    favoured, waiting = Owner(budget), Owner(budget)
    taken_back: list[Owner] = []
    assert favoured.grow(150)
    assert not waiting.grow(50)
    budget.keep(favoured, lambda: taken_back.append(favoured))
    assert (taken_back, waiting.resumed, budget.used) == ([favoured], 1, 50)
    budget.release(waiting)
    assert favoured.grow(150)
    budget.keep(favoured, lambda: taken_back.append(favoured))
    assert (len(taken_back), budget.used) == (2, 0)


def test_small_frames_have_nothing_to_keep() -> None:
    budget = InboundBudget(100)
    budget.keep(Owner(budget), lambda: pytest.fail("nothing was charged"))
    assert budget.used == 0
