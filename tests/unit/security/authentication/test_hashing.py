"""The queue of hashing: one at a time, with a bound."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from flintmq.security.authentication.hashing import HashingQueue
from flintmq.security.authentication.mechanism import SaslStep

T = TypeVar("T")


class OneByOne:
    """Work waits until the test runs it."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], object]]] = []

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        self.submitted.append((work, done))

    def run(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        raise NotImplementedError

    def finish(self) -> None:
        work, done = self.submitted.pop(0)
        try:
            result = work()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)


def test_work_is_done_in_order_one_at_a_time_and_refused_beyond_the_bound() -> None:
    threads = OneByOne()
    queue = HashingQueue(threads, waiting_max=2)
    done: list[str] = []

    def submit(name: str) -> bool:
        def work() -> SaslStep:
            if name == "b":
                raise ValueError(name)
            return SaslStep(name.encode())

        return queue.submit(
            work, lambda step, error: done.append(f"{name} {step and step.token!r} {error!r}"), "10.0.0.1"
        )

    assert [submit(name) for name in "abcd"] == [True, True, True, False]
    while threads.submitted:
        assert len(threads.submitted) == 1
        threads.finish()
    assert done == ["a b'a' None", "b None ValueError('b')", "c b'c' None"]
    assert submit("e")


def test_one_address_does_not_keep_others_out() -> None:
    threads = OneByOne()
    queue = HashingQueue(threads, waiting_max=4)
    done: list[str] = []

    def submit(name: str, host: str) -> bool:
        def finished(step: SaslStep | None, error: BaseException | None) -> None:
            done.append(name if error is None else f"{name} {type(error).__name__}")

        return queue.submit(lambda: SaslStep(b""), finished, host)

    assert [submit(f"attack-{number}", "6.6.6.6") for number in range(6)] == [True] * 5 + [False]
    # The queue is full: the address with the most gives way, until another has as many.
    assert [submit(f"good-{number}", "10.0.0.1") for number in range(3)] == [True, True, False]
    assert done == ["attack-4 SaslUnavailable", "attack-3 SaslUnavailable"]
    done.clear()
    while threads.submitted:
        threads.finish()
    assert done == ["attack-0", "attack-1", "good-0", "attack-2", "good-1"]
