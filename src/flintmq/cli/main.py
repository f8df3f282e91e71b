"""The `flintmq` command: the table of its commands. Each is loaded when it is called."""

from __future__ import annotations

import click

from flintmq import __version__
from flintmq.cli.common.command import Entry, LazyGroup

COMMANDS = {
    "serve": Entry("flintmq.cli.serve", "Run a broker."),
    "topic": Entry("flintmq.cli.topic.main", "List, create, describe, change, clean and delete topics."),
    "group": Entry("flintmq.cli.group.main", "List, describe, reset and delete consumer groups."),
    "transaction": Entry(
        "flintmq.cli.transaction.main", "List, describe and abort transactions, and find those that hang."
    ),
    "produce": Entry("flintmq.cli.produce.main", "Write records to a topic."),
    "consume": Entry("flintmq.cli.consume.main", "Read records of a topic."),
    "ping": Entry("flintmq.cli.ping", "Ask whether a broker answers, and how fast."),
    "top": Entry("flintmq.cli.top.main", "Watch a broker at work."),
    "bench": Entry("flintmq.cli.bench.main", "Measure a broker: writing, reading, latency."),
    "spark": Entry(
        "flintmq.cli.spark.main",
        "Read and write topics with Spark: check the machine, open a shell, run programs.",
    ),
    "lake": Entry(
        "flintmq.cli.lake.main",
        "Turn topics into tables, and back: Parquet, Iceberg and Delta, in a folder or an object store.",
    ),
    "pipeline": Entry(
        "flintmq.cli.pipeline.main", "Check, draw and run pipelines that are declared in a file."
    ),
    "demo": Entry("flintmq.cli.demo", "Watch a shop at work: broker, pipeline and lake on this machine."),
    "config": Entry(
        "flintmq.cli.config", "List all settings: meaning, value, and where the value comes from."
    ),
    "log": Entry("flintmq.cli.log.main", "Check the logs of topics."),
    "dump-log": Entry("flintmq.cli.log.dump", "Show and check the files of a log, without a broker."),
    "version": Entry("flintmq.cli.version", "Show the version."),
}

EPILOG = """\b
Start a broker and use it:
  flintmq serve
  flintmq produce greetings "hello world"
  flintmq consume greetings

Commands that talk to a broker take --bootstrap-server, or FLINTMQ_BOOTSTRAP_SERVERS, and look at
localhost:9092 otherwise. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 no broker answers."""

main = LazyGroup(
    name="flintmq",
    entries=COMMANDS,
    help="FlintMQ: a Kafka-compatible message broker that starts at once.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, prog_name="flintmq")(main)
