"""What is done to the broker while it is watched, and when: a plan drawn from a seed, and its hand.

The same seed gives the same plan. What the clients do in between is up to their threads.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from dataclasses import dataclass
from random import Random

from support.broker.broker_process import BrokerProcess
from support.histories.history import Blow, Recorder
from support.wire.tcp_proxy import TcpProxy

_KINDS = ("kill", "kill", "kill twice", "pause", "cut", "cut", "silence", "shut out")


@dataclass(frozen=True)
class Deed:
    after_s: float
    """From the end of the one before."""
    what: str
    lasts_s: float


def plan(seed: int, seconds: float) -> list[Deed]:
    random = Random(seed)
    deeds: list[Deed] = []
    passed = 0.0
    while True:
        deed = Deed(random.uniform(0.3, 4.0), random.choice(_KINDS), random.uniform(0.02, 2.0))
        passed += deed.after_s + deed.lasts_s
        if passed > seconds:
            return deeds
        deeds.append(deed)


class Nemesis:
    def __init__(self, broker: BrokerProcess, proxy: TcpProxy, recorder: Recorder) -> None:
        self._broker = broker
        self._proxy = proxy
        self._recorder = recorder
        self.done: Counter[str] = Counter()

    def run(self, deeds: list[Deed], stopping: threading.Event) -> None:
        """Until all is done or it is time to stop; the broker runs afterwards and can be reached."""
        for deed in deeds:
            if stopping.wait(deed.after_s):
                return
            blow = self._recorder.begin(Blow(process="nemesis", what=deed.what))
            self._carry_out(deed, stopping)
            self._recorder.end(blow)
            self.done[deed.what] += 1

    def _carry_out(self, deed: Deed, stopping: threading.Event) -> None:
        match deed.what:
            case "kill":
                self.kill_and_restart(deed.lasts_s / 2, stopping)
            case "kill twice":
                self.kill_and_restart(0, stopping)
                self.kill_and_restart(deed.lasts_s / 4, stopping)
            case "pause":
                self._broker.process.send_signal(signal.SIGSTOP)
                stopping.wait(deed.lasts_s)
                self._broker.process.send_signal(signal.SIGCONT)
            case "cut":
                self._proxy.cut()
            case "silence":
                self._proxy.silence()
                stopping.wait(deed.lasts_s)
                # ORDER: cut first, so that what was answered is never heard.
                self._proxy.cut()
                self._proxy.speak()
            case "shut out":
                target, self._proxy.target = self._proxy.target, None
                self._proxy.cut()
                stopping.wait(deed.lasts_s)
                self._proxy.target = target

    def kill_and_restart(self, down_s: float, stopping: threading.Event) -> None:
        self._broker.kill()
        self._proxy.target = None
        stopping.wait(down_s)
        self._broker.start()
        self._proxy.target = self._broker.host, self._broker.port
