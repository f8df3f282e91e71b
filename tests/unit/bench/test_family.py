"""CPU time of processes that have ended without anybody waiting for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from bench import machine
from bench.family import LOOKING, Family

pytestmark = pytest.mark.skipif(not machine.is_supported(), reason="reads /proc")

# Starts a child that spends half a second and says so, then waits to be ended; nobody waits for it. The half second
# is by the clock that /proc shows, which counts whole ticks, of the user's and of the system's time by themselves.
NEGLECTFUL = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    while sum(os.times()[:2]) < 0.5:
        pass
    print("spent", os.getpid(), flush=True)
    signal.pause()
signal.pause()
"""


def test_what_a_worker_spent_is_not_gone_with_it() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", NEGLECTFUL], stdout=subprocess.PIPE, text=True) as parent,
        Family(parent.pid) as family,
    ):
        assert parent.stdout is not None
        word, child = parent.stdout.readline().split()
        before = family.cpu_s()
        os.kill(int(child), signal.SIGKILL)
        while os.path.exists(f"/proc/{child}"):
            os.sched_yield()
        after = family.cpu_s()
        parent.kill()
    assert word == "spent"
    assert 0.5 <= sum(spent for program, spent in before.items() if program != LOOKING) < 5
    assert all(after[program] >= before[program] for program in before if program != LOOKING)


def test_a_member_that_is_left_out_is_left_out_with_its_children() -> None:
    with subprocess.Popen([sys.executable, "-c", NEGLECTFUL], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = parent.stdout.readline().split()[1]
        with Family(os.getpid(), without=frozenset([parent.pid])) as all_but:
            mine = sum(all_but.cpu_s().values())
        with Family(os.getpid()) as everybody:
            assert sum(everybody.cpu_s().values()) - mine >= 0.4
        os.kill(int(child), signal.SIGKILL)
        parent.kill()
