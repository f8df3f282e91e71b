"""`python -m bench`: nothing else here parses arguments or writes to the terminal."""

from __future__ import annotations

import argparse
import fnmatch
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType
from typing import TypeVar

from bench import machine, rdkafka, report, tls
from bench.compiled import CHECKOUT, CannotBuild, compiled_package
from bench.guarded import GuardedPeer
from bench.machine import Cores
from bench.peers import (
    JAVA_OPTIONS,
    KAFKA_VERSION,
    CannotRun,
    CheckoutPeer,
    FlintPeer,
    KafkaPeer,
    KfakePeer,
    Peer,
)
from bench.process import BrokerFailed
from bench.suite import Plan, Results, run
from bench.workloads import WORKLOADS, Workload
from flintmq import __version__

_RECOVERY_GB = 0.5

N = TypeVar("N", int, float)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.list:
        _say("\n".join(f"{one.name:18} {one.summary}" for one in WORKLOADS))
        return 0
    if not machine.is_supported():
        _say("bench reads CPU and memory of the brokers from /proc, which only Linux has.")
        return 2
    workloads = _chosen(options.only)
    if not workloads:
        _say(f"no workload is called {options.only}; --list names them all")
        return 2
    try:
        with ExitStack() as folders:
            return _measure(options, workloads, folders)
    except (BrokerFailed, CannotRun) as error:
        _say(f"A broker could not be started: {error}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; the brokers are stopped")
        return 130


def _measure(options: argparse.Namespace, workloads: Sequence[Workload], folders: ExitStack) -> int:
    load_before = machine.load()
    peers = _peers(options, folders)
    build = "compiled" if options.compiled else "uncompiled"
    versions = {
        report.OURS: f"{__version__} ({build})",
        report.PLAIN: f"{__version__} (uncompiled)",
        report.OPEN: f"{__version__} ({build}), without ACLs and quotas",
        report.THEIRS: KAFKA_VERSION,
        KfakePeer.name: "of franz-go, in memory",
    }
    versions |= {peer.name: peer.version() for peer in peers if isinstance(peer, CheckoutPeer)}
    circumstances = report.Circumstances(
        when=time.strftime("%Y-%m-%d %H:%M"),
        machine=machine.description(),
        versions={peer.name: versions[peer.name] for peer in peers},
        command=shlex.join(["python", "-m", "bench", *sys.argv[1:]]),
        load_before=load_before,
        cores_are_separate=Cores.available().are_separate,
    )
    for name, version in circumstances.versions.items():
        _say(f"{name}: {version}")
    _say(f"{circumstances.machine}; load average {circumstances.load_before:.2f}")
    if circumstances.load_before > report.NOISY_LOAD:
        _say("The machine has other work: figures of elapsed time (~) will be noise.")
    if not circumstances.cores_are_separate:
        _say("There is one core only: brokers and clients share it, and nothing is pinned.")

    def keep(results: Results) -> None:
        # After every measurement, so that an interrupted run has not been for nothing.
        if options.out:
            _write(options.out, report.as_json(results, circumstances))

    # SIGTERM, too, must end the brokers on its way out.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="flintmq-bench-", dir=options.folder) as folder:
            plan = Plan(
                workloads=workloads,
                rounds=options.rounds,
                scale=options.scale,
                recovery_gb=options.recovery_gb,
                folder=folder,
                warm=not options.cold,
            )
            results = run(peers, plan, say=_say, after_each=keep)
    finally:
        signal.signal(signal.SIGTERM, before)
    _say(f"\n{report.table(results)}")
    for peer in report.peers_of(results.brokers):
        _say(f"\n{report.peer_table(results, peer)}")
    _say(f"\n{report.noise(results, circumstances)}")
    if options.markdown:
        _write(options.markdown, report.markdown(results, circumstances, workloads))
    return 1 if results.errors else 0


def _peers(options: argparse.Namespace, folders: ExitStack) -> list[Peer]:
    package = _compiled(folders, CHECKOUT) if options.compiled else None
    peers: list[Peer] = [FlintPeer(package)]
    if options.acls or options.quotas:
        peers = [
            GuardedPeer(package, acls=options.acls, quotas=options.quotas),
            FlintPeer(package, name=report.OPEN),
        ]
    for name, checkout in options.peer:
        package = _compiled(folders, checkout) if options.compiled else None
        peers.append(CheckoutPeer(name, checkout, package))
    if options.plain:
        peers.append(FlintPeer(name=report.PLAIN))
    if options.kfake:
        folder = folders.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-kfake-"))
        peers.append(KfakePeer.built(folder))
    if not options.flintmq_only:
        try:
            peers.append(KafkaPeer.found(options.java_options))
        except CannotRun as error:
            _say(f"Apache Kafka cannot be measured: {error}. FlintMQ runs alone; there are no ratios.")
    return peers


def _compiled(folders: ExitStack, checkout: str) -> str:
    """Return a directory with FlintMQ as its compiled wheels have it, for as long as `folders` is open."""
    _say(f"building a compiled wheel of {checkout}")
    try:
        return folders.enter_context(compiled_package(checkout))
    except CannotBuild as error:
        raise CannotRun(f"{error} is not here to build a compiled wheel with") from error


def _chosen(only: str | None) -> list[Workload]:
    patterns = only.split(",") if only else ["*"]
    chosen = [one for one in WORKLOADS if any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)]
    if not rdkafka.is_available() and any(one.needs_librdkafka for one in chosen):
        _say("confluent-kafka is not installed, or too old: the workloads through librdkafka are left out.")
        chosen = [one for one in chosen if not one.needs_librdkafka]
    if not tls.is_available() and any(one.needs_tls for one in chosen):
        _say("cryptography is not installed: the workloads over TLS are left out.")
        chosen = [one for one in chosen if not one.needs_tls]
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure FlintMQ beside Apache Kafka. See bench/README.md."
    )
    add = parser.add_argument
    add("--list", action="store_true", help="name the workloads and stop")
    add("--only", metavar="NAMES", help="workloads by name, separated by commas; raw-* works too")
    add("--rounds", type=_positive_count, default=3, help="how often; the best counts (default 3)")
    add("--scale", type=_positive, default=1.0, help="size of the workloads; 1 to be quoted, 0.05 to look")
    add("--recovery-gb", type=_positive, default=_RECOVERY_GB, metavar="GB", help="data to recover (0.5)")
    add(
        "--peer",
        action="append",
        type=_peer,
        default=[],
        metavar="NAME=DIR",
        help="measure the checkout in DIR, with its own .venv, beside this one; may be repeated",
    )
    add("--flintmq-only", action="store_true", help="leave Kafka out")
    add("--compiled", action="store_true", help="measure a compiled wheel of FlintMQ, not the sources")
    add("--plain", action="store_true", help="measure the sources, uncompiled, as a peer beside --compiled")
    add("--kfake", action="store_true", help="measure franz-go's in-memory broker too, built by Go")
    add("--acls", type=int, default=0, metavar="N", help="put N ACLs in force, beside a peer `open` without")
    add("--quotas", action="store_true", help="set quotas that are never hit, beside a peer `open` without")
    add("--cold", action="store_true", help="do not warm the brokers first")
    add("--java-options", default=JAVA_OPTIONS, help=f"for Kafka's JVM (default {JAVA_OPTIONS})")
    add("--folder", metavar="DIR", help="where the brokers' folders go (default: the system's)")
    add("--out", metavar="FILE", help="write all measurements as JSON, after each one")
    add("--markdown", metavar="FILE", help="write the tables as Markdown")
    return parser


def _peer(text: str) -> tuple[str, str]:
    name, _, checkout = text.partition("=")
    if not name or not checkout or os.sep in name:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=DIR")
    if name.lower() in (
        report.OURS.lower(),
        report.THEIRS.lower(),
        report.PLAIN,
        report.OPEN,
        KfakePeer.name,
    ):
        raise argparse.ArgumentTypeError(f"{name} is the name of another broker here")
    return name, checkout


def _positive(text: str) -> float:
    return _checked(float(text))


def _positive_count(text: str) -> int:
    return _checked(int(text))


def _checked(value: N) -> N:
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{value} is not above 0")
    return value


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _write(path: str, text: str) -> None:
    # Aside, then renamed: a reader never sees half a file.
    aside = f"{path}.new"
    with open(aside, "w") as file:
        file.write(text)
    os.replace(aside, path)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
