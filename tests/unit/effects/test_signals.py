"""Signals are handled while a command runs, and handed back afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from flintmq.effects.signals import STOP_SIGNALS, SignalHandler, end_now


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_each_signal_is_handled_and_the_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    came: list[signal.Signals] = []
    with SignalHandler(came.append):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
    assert came == [signal.SIGINT, signal.SIGTERM, signal.SIGINT]
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_handlers_that_a_library_installed_are_replaced_again() -> None:
    came: list[signal.Signals] = []
    with SignalHandler(came.append) as handler:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        handler.install()
        signal.raise_signal(signal.SIGINT)
    assert came == [signal.SIGINT]


def test_only_the_signals_that_were_named_are_handled() -> None:
    before = signal.getsignal(signal.SIGINT)
    with SignalHandler(lambda _: None, (signal.SIGTERM,)):
        assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_installed() -> None:
    installed: list[bool] = []

    def enter() -> None:
        before = signal.getsignal(signal.SIGINT)
        with SignalHandler(lambda _: None):
            installed.append(signal.getsignal(signal.SIGINT) is not before)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert installed == [False]


def test_ending_now_is_an_exception_first_and_the_kernel_s_end_next() -> None:
    with pytest.raises(KeyboardInterrupt):
        end_now(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        end_now(signal.SIGTERM)
    assert ended.value.code == 143
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == [signal.SIG_DFL] * 2
