"""A broker behind a proxy, and rounds of clients and blows on it; each round has topics of its own and is checked.

Invariant: a round ends. Everything in it that waits has a bound, and a client that is still at it after that is a
failure with its name.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from support.broker.broker_process import BrokerProcess
from support.histories.checker import Anomaly, check
from support.histories.clients import PATIENCE_S, Client, Scene, Topics
from support.histories.consumers import Copier, GroupMember, Reader, note_offsets, read_to_the_end
from support.histories.history import FinalRead, GaveUp, History, Outcome, Poll, Recorder
from support.histories.ledger import Ledger
from support.histories.nemesis import Deed, Nemesis
from support.histories.producers import IdempotentProducer, TransactionalProducer, Transactor
from support.histories.second_generation import SecondGenerationProducer
from support.wire.tcp_proxy import TcpProxy
from support.wire.wire import Wire

_SETTINGS = (
    "flint.rest.port=-1",
    "auto.create.topics.enable=false",
    "group.initial.rebalance.delay.ms=0",
)
_SEGMENT_BYTES = "40000"
READERS, COPIERS = "readers", "copiers"


@dataclass
class Result:
    seed: int
    seconds: float
    history: History
    anomalies: list[Anomaly]
    blows: Counter[str]
    failures: list[str]
    """What clients died of."""

    def __str__(self) -> str:
        """One line of what was done, and one for each failure and each anomaly."""
        ledger = Ledger(self.history)
        sends = Counter(send.outcome for send in ledger.sends.values())
        fates = Counter(transaction.fate.value for transaction in ledger.transactions.values())
        read = sum(len(one.records) for one in self.history if isinstance(one, Poll | FinalRead))
        commits = sum(len(found) for found in ledger.offset_commits.values())
        gave_up = _counted(
            Counter(f"{_client(one.process)} {one.why}" for one in self.history if isinstance(one, GaveUp))
        )
        line = (
            f"seed {self.seed}, {self.seconds:.0f} s: {len(ledger.sends)} sends "
            f"({sends[Outcome.OK]} acknowledged, {sends[Outcome.INFO]} unanswered, {sends[Outcome.FAIL]} failed), "
            f"{sum(fates.values())} transactions ({_counted(fates)}), "
            f"{read} records read, {commits} commits of offsets; blows: {_counted(self.blows)}; "
            f"producers given up: {gave_up}; {len(self.anomalies)} anomalies"
        )
        said = [*self.failures, *map(str, self.anomalies[:40])]
        return "\n".join([line, *(f"  {one}" for one in said)])


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"


def _client(process: str) -> str:
    """Which kind of client, of a process such as `r1.copier-2#3`."""
    return process.partition(".")[2].partition("#")[0].rstrip("-0123456789")


class Stage:
    def __init__(self, folder: Path, *, program: str = "flintmq", env: dict[str, str] | None = None) -> None:
        self._proxy = TcpProxy()
        self.folder = folder
        self._program = program
        self._env = env
        self._rounds = 0

    def __enter__(self) -> Stage:
        self._proxy.__enter__()
        settings = [*_SETTINGS, f"advertised.listeners=PLAINTEXT://{self._proxy.address}"]
        self.broker = BrokerProcess(
            self.folder / "data",
            [word for setting in settings for word in ("--set", setting)],
            env=self._env,
            program=self._program,
        )
        try:
            self.broker.start()
        except BaseException:
            self._proxy.close()
            raise
        self._proxy.target = self.broker.host, self.broker.port
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.broker.close()
        self._proxy.close()

    def restart(self) -> None:
        """In order, as an operator would."""
        self._proxy.target = None
        code = self.broker.stop()
        assert code == 0, f"the broker ended with code {code}:\n{self.broker.errors}"
        self.broker.start()
        self._proxy.target = self.broker.host, self.broker.port

    def play(
        self, seed: int, seconds: float, deeds: Sequence[Deed], *, patience_s: float = PATIENCE_S
    ) -> Result:
        """One round: clients at work and blows on the broker for so long, then peace and the final reading."""
        self._rounds += 1
        scene = Scene(self._proxy.address, self._topics(), Recorder(), f"r{self._rounds}", patience_s)
        nemesis = Nemesis(self.broker, self._proxy, scene.recorder)
        clients = _clients(scene, seed)
        began = time.monotonic()
        peace = threading.Event()
        striking = _Striking(scene, nemesis, list(deeds), peace, seed)
        for thread in (*clients, striking):
            thread.start()
        striking.join(seconds)
        peace.set()
        _join([striking])
        if striking.failure is not None:
            raise striking.failure
        scene.stopping.wait(max(0.0, began + seconds - time.monotonic()))
        scene.stopping.set()
        _join(clients)
        # Calls of librdkafka that hang go on when a connection breaks.
        self._proxy.cut()
        settling = [client for client in clients if isinstance(client, Transactor | SecondGenerationProducer)]
        for client in settling:
            client.settle()
        for committed_only in (False, True):
            read_to_the_end(scene, committed_only=committed_only)
        note_offsets(scene, f"{scene.name}.{READERS}", scene.topics.mixed + scene.topics.plain)
        note_offsets(scene, f"{scene.name}.{COPIERS}", scene.topics.plain)
        history: History = list(scene.recorder.history)
        failures = [f"{one.name}: {one.failure!r}" for one in clients if one.failure is not None]
        return Result(seed, time.monotonic() - began, history, check(history), nemesis.done, failures)

    def _topics(self) -> Topics:
        names = {kind: f"{kind}-{self._rounds}" for kind in ("plain", "mixed", "copies")}
        with Wire(self.broker.address) as wire:
            for name in names.values():
                wire.create_topic(name, partitions=2, segment_bytes=_SEGMENT_BYTES)
        return Topics(**{kind: ((name, 0), (name, 1)) for kind, name in names.items()})


class _Striking(Client):
    def __init__(
        self, scene: Scene, nemesis: Nemesis, deeds: list[Deed], peace: threading.Event, seed: int
    ) -> None:
        super().__init__(scene, "nemesis", seed)
        self._nemesis = nemesis
        self._deeds = deeds
        self._peace = peace

    def work(self) -> None:
        self._nemesis.run(self._deeds, self._peace)


def _clients(scene: Scene, seed: int) -> list[Client]:
    readers, copiers = f"{scene.name}.{READERS}", f"{scene.name}.{COPIERS}"
    return [
        IdempotentProducer(scene, "idempotent-1", seed),
        IdempotentProducer(scene, "idempotent-2", seed),
        TransactionalProducer(scene, "transactional-1", seed),
        TransactionalProducer(scene, "transactional-2", seed),
        SecondGenerationProducer(scene, "second-generation", seed),
        Copier(scene, "copier-1", seed, group=copiers),
        Copier(scene, "copier-2", seed, group=copiers),
        Reader(scene, "reader-committed", seed, committed_only=True),
        Reader(scene, "reader-uncommitted", seed, committed_only=False),
        GroupMember(scene, "member-1", seed, group=readers),
        GroupMember(scene, "member-2", seed, group=readers),
    ]


def _join(threads: Sequence[Client]) -> None:
    deadline = time.monotonic() + 3 * PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), f"{thread.name} does not end"
