"""`python -m bench.spark`: Spark through FlintMQ's source and sink, beside Spark's own tuned Kafka connector.

Both work on one FlintMQ broker, in one session, turn by turn, so that they meet the same noise and the same warm JVM.
Counted is the CPU time of everything that takes part: the JVM, its Python workers, this process, and the broker.
Each query's answer is checked.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench import lake, machine, pipeline
from bench.compiled import CannotBuild, compiled_package
from bench.connector import SPARK_VERSION, NoConnector, fetch_connector
from bench.family import Family
from bench.loads import BatchShape, ProduceLoad, Topic
from bench.machine import Cores
from bench.peers import FlintPeer
from bench.process import Broker
from bench.stage import OURS, THEIRS, Stage, Workload
from bench.wire import Connection
from bench.workloads.target import create_topics, delete_topics, end_offsets, wait_until_led
from flintmq.arrow.codec import record_fields
from flintmq.spark import register, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_BYTES: Final = 100
PARTITIONS: Final = 4
SHAPE: Final = BatchShape(record_bytes=RECORD_BYTES, target_bytes=16 * 1024)
FILTERED_SHARE: Final = 0.1
TRIGGERS: Final = 5
"""Micro-batches of a stream that reads all there is."""

_JAVA: Final = "java"
_IN_FLIGHT: Final = 5
_STREAM_TIMEOUT_S: Final = 600


@dataclass(frozen=True, slots=True)
class Cost:
    java_s: float
    python_s: float
    broker_s: float
    wall_s: float

    @property
    def cpu_s(self) -> float:
        return self.java_s + self.python_s + self.broker_s


def read_all(stage: Stage, source: str) -> None:
    _expect(_sum_of(stage.read(source)), stage.rows)


def read_values(stage: Stage, source: str) -> None:
    """Only the values: ours is told so, the connector has no way to be."""
    frame = stage.read(source, **({"columns": "value"} if source == OURS else {}))
    _expect(_sum_of(frame), stage.rows)


def read_filtered(stage: Stage, source: str) -> None:
    """The newest tenth of each partition."""
    each = stage.rows // PARTITIONS
    first = int(each * (1 - FILTERED_SHARE))
    _expect(_sum_of(stage.read(source).where(f"offset >= {first}")), (each - first) * PARTITIONS)


def stream_all(stage: Stage, source: str) -> None:
    """All there is, in a few micro-batches, thrown away by Spark's own sink for that."""
    stream = stage.spark.readStream.format(source).options(**stage.options(source))
    each = str(stage.rows // TRIGGERS)
    frame = stream.options(startingOffsets="earliest", maxOffsetsPerTrigger=each).load()
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as checkpoint:
        query = (
            frame.selectExpr("length(value) as size")
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(_STREAM_TIMEOUT_S):
            query.stop()
            raise TimeoutError(f"the stream did not end in {_STREAM_TIMEOUT_S} s")
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
    if read != stage.rows:
        raise AssertionError(f"{source} streamed {read} rows of {stage.rows}")


def write_all(stage: Stage, source: str) -> None:
    """Keys of a few digits, values of 100 bytes, to a topic of its own."""
    frame = stage.spark.range(0, stage.rows, 1, PARTITIONS).selectExpr(
        "cast(cast(id as string) as binary) as key",
        f"cast(lpad(cast(id as string), {RECORD_BYTES}, 'x') as binary) as value",
    )
    with Connection(stage.broker.port) as connection:
        (topic,) = create_topics(connection, [f"bench-sink-{time.monotonic_ns()}"], PARTITIONS)
        wait_until_led(connection, topic)
        to = {"kafka.bootstrap.servers": stage.broker.bootstrap, "topic": topic.name}
        frame.write.format(source).options(**to).mode("append").save()
        written = sum(end_offsets(connection, topic) or [])
        delete_topics(connection, [topic.name])
    if written != stage.rows:
        raise AssertionError(f"{source} wrote {written} records of {stage.rows}")


WORKLOADS: Final = (
    Workload("batch", "a topic read whole, all columns: count, sum of lengths", 0.85, read_all),
    Workload("batch-value", "the same; ours is asked for the values only", 0.85, read_values),
    Workload("filter", "the newest tenth, by a filter on offsets", 0.6, read_filtered),
    Workload("available-now", f"a stream over the whole topic in {TRIGGERS} micro-batches", 1.0, stream_all),
    Workload("sink", "rows written to a topic", 1.0, write_all),
    *lake.WORKLOADS,
    *pipeline.WORKLOADS,
)


def _sum_of(frame: DataFrame) -> Any:
    return frame.selectExpr("count(*) as rows", "sum(length(value)) as bytes").collect()[0]


def _expect(found: Any, rows: int) -> None:
    if (found.rows, found.bytes) != (rows, rows * RECORD_BYTES):
        raise AssertionError(f"{found.rows} rows of {found.bytes} bytes came, not {rows}")


def measure(stage: Stage, workload: Workload, source: str) -> Cost:
    # What the one before left to be written back would be paid for by the next.
    os.sync()
    spark, broker, began = stage.family.cpu_s(), stage.broker.cpu_s(), time.monotonic()
    workload.run(stage, source)
    wall_s = time.monotonic() - began
    broker_s = stage.broker.cpu_s() - broker
    after = stage.family.cpu_s()
    java_s = after[_JAVA] - spark[_JAVA]
    return Cost(java_s, sum(after.values()) - sum(spark.values()) - java_s, broker_s, wall_s)


def fill(broker: Broker, rows: int) -> tuple[Topic, int]:
    """A topic with so many records, or a few less so that all partitions have as many; and how many."""
    requests = max(1, rows // SHAPE.count // PARTITIONS) * PARTITIONS
    with Connection(broker.port) as connection:
        (topic,) = create_topics(connection, ["bench-source"], PARTITIONS)
        wait_until_led(connection, topic)
        ProduceLoad(topic, SHAPE).run(connection, requests, in_flight=_IN_FLIGHT)
    return topic, requests * SHAPE.count


def table(costs: dict[str, dict[str, list[Cost]]], rows: int) -> list[str]:
    """Markdown. Each side's best round; the ratio is of the best, and of the median for how far to trust it."""
    lines = [
        "| workload | FlintMQ: JVM + Python + broker, CPU-s | connector, the same | ratio | of medians | goal | |",
        "|---|---|---|---|---|---|---|",
    ]
    for workload in WORKLOADS:
        sides = costs.get(workload.name)
        if sides is None:
            continue
        if workload.is_rate:
            best = min(sides[OURS], key=lambda one: one.cpu_s)
            rate = rows / best.cpu_s
            verdict = "met" if rate >= workload.goal else "MISSED"
            lines.append(
                f"| {workload.name}: {workload.summary} | {_cpu(best)} | | **{rate / 1e6:.2f} M rows/CPU-s** | "
                f"| ≥ {workload.goal / 1e6:.1f} M | {verdict} |"
            )
            continue
        ours, theirs = (min(sides[side], key=lambda one: one.cpu_s) for side in (OURS, THEIRS))
        ratio = ours.cpu_s / theirs.cpu_s
        middle = statistics.median(one.cpu_s for one in sides[OURS]) / statistics.median(
            one.cpu_s for one in sides[THEIRS]
        )
        lines.append(
            f"| {workload.name}: {workload.summary} | {_cpu(ours)} | {_cpu(theirs)} | **{ratio:.2f}** | {middle:.2f} "
            f"| ≤ {workload.goal:.2f} | {'met' if ratio <= workload.goal else 'MISSED'} |"
        )
    return lines


def _cpu(cost: Cost) -> str:
    return f"{cost.java_s:.2f} + {cost.python_s:.2f} + {cost.broker_s:.2f} = {cost.cpu_s:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.compiled:
        return _run_compiled(sys.argv[1:] if arguments is None else arguments)
    if not machine.is_supported():
        _say("bench reads CPU times from /proc, which only Linux has.")
        return 2
    chosen = [one for one in WORKLOADS if options.only is None or one.name in options.only.split(",")]
    if not chosen:
        _say(f"no workload is called {options.only}: {', '.join(one.name for one in WORKLOADS)}")
        return 2
    try:
        jars = fetch_connector()
    except NoConnector as error:
        _say(str(error))
        return 2
    with ExitStack() as ends:
        return _run(options, chosen, jars, ends)


def _run_compiled(arguments: Sequence[str]) -> int:
    """Run the same in another process, in which FlintMQ is a compiled wheel of this checkout."""
    _say("building a compiled wheel")
    try:
        with compiled_package() as package:
            paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            command = [
                sys.executable,
                "-m",
                "bench.spark",
                *(one for one in arguments if one != "--compiled"),
            ]
            return subprocess.run(command, env=environment).returncode
    except CannotBuild as error:
        _say(f"{error} is not here to build a compiled wheel with.")
        return 2


def _run(options: argparse.Namespace, chosen: Sequence[Workload], jars: str, ends: ExitStack) -> int:
    load_before = machine.load()
    folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-bench-", dir=options.folder))
    everywhere = frozenset(os.sched_getaffinity(0))
    broker = ends.enter_context(
        Broker(FlintPeer(), os.path.join(folder, "broker"), Cores(everywhere, everywhere))
    )
    broker.start()
    topic, rows = fill(broker, options.rows)
    spark = session({"spark.jars": jars, "spark.driver.memory": options.memory}, master=options.master)
    ends.callback(spark.stop)
    register(spark)
    family = ends.enter_context(Family(os.getpid(), without=frozenset([broker.pid])))
    tables = os.path.join(folder, "tables")
    os.mkdir(tables)
    stage = Stage(spark, family, broker, topic, rows, tables)
    how = "compiled" if record_fields.IS_COMPILED else "uncompiled"
    about = (
        f"{machine.description()}; FlintMQ {how}; Spark {SPARK_VERSION} {options.master}; "
        f"{rows:,} records of {RECORD_BYTES} B; best of {options.rounds}; load average {load_before:.2f} before"
    )
    _say(about)
    costs: dict[str, dict[str, list[Cost]]] = {}
    for number in range(options.warm + options.rounds):
        for workload in chosen:
            # Who goes first changes, for the second finds the page cache and the code warmer.
            for source in workload.sides if number % 2 == 0 else workload.sides[::-1]:
                cost = measure(stage, workload, source)
                kept = number >= options.warm
                if kept:
                    costs.setdefault(workload.name, {}).setdefault(source, []).append(cost)
                _say(
                    f"[{number - options.warm + 1 if kept else 'warm'}] {workload.name:14} {source:8} "
                    f"{_cpu(cost)} CPU-s, {cost.wall_s:.1f} s"
                )
    lines = table(costs, rows)
    _say("\n" + "\n".join(lines))
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(f"{about}.\n\n" + "\n".join(lines) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("--rows", type=int, default=5_000_000, help="records of 100 B in the topic (5000000)")
    add("--rounds", type=int, default=3, help="how often each side runs each workload (3)")
    add("--warm", type=int, default=1, help="rounds before that are not counted (1)")
    add("--compiled", action="store_true", help="measure a compiled wheel of FlintMQ, not the sources")
    add("--only", metavar="NAMES", help="workloads by name, separated by commas")
    add("--master", default="local[2]", help="Spark's master (local[2])")
    add("--memory", default="2g", help="heap of the driver's JVM (2g)")
    add("--folder", metavar="DIR", help="where the broker's folder goes (default: the system's)")
    add("--markdown", metavar="FILE", help="write the table")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
