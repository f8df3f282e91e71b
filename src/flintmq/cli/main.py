"""The `flintmq` command: the table of its commands. Each is loaded when it is called."""

from __future__ import annotations

import click

from flintmq import __version__
from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "serve": CommandEntry("flintmq.cli.serve", "Run a broker."),
    "topic": CommandEntry(
        "flintmq.cli.topic.main", "List, create, describe, change, clean and delete topics."
    ),
    "group": CommandEntry("flintmq.cli.group.main", "List, describe, reset and delete consumer groups."),
    "transaction": CommandEntry(
        "flintmq.cli.transaction.main", "List, describe and abort transactions, and find those that hang."
    ),
    "user": CommandEntry(
        "flintmq.cli.user.main", "Add, list and delete the users that authenticate with SASL."
    ),
    "token": CommandEntry("flintmq.cli.token.main", "Create, renew, expire and list delegation tokens."),
    "acl": CommandEntry("flintmq.cli.acl.main", "Add, list and delete ACLs: which principal may do what."),
    "quota": CommandEntry(
        "flintmq.cli.quota.main",
        "Set, list and delete quotas: how fast users, client ids and addresses may go.",
    ),
    "produce": CommandEntry("flintmq.cli.produce.main", "Write records to a topic."),
    "consume": CommandEntry("flintmq.cli.consume.main", "Read records of a topic."),
    "ping": CommandEntry("flintmq.cli.ping", "Ask whether a broker answers, and how fast."),
    "top": CommandEntry("flintmq.cli.top.main", "Watch a broker at work."),
    "bench": CommandEntry("flintmq.cli.bench.main", "Measure a broker: writing, reading, latency."),
    "spark": CommandEntry(
        "flintmq.cli.spark.main",
        "Read and write topics with Spark: check the machine, open a shell, run programs, keep a session.",
    ),
    "lake": CommandEntry(
        "flintmq.cli.lake.main",
        "Turn topics into tables, and back: Parquet, Iceberg and Delta, in a directory or an object store.",
    ),
    "pipeline": CommandEntry(
        "flintmq.cli.pipeline.main", "Check, draw and run pipelines that are declared in a file."
    ),
    "demo": CommandEntry(
        "flintmq.cli.demo", "Watch a shop at work: broker, pipeline and lake on this machine."
    ),
    "config": CommandEntry(
        "flintmq.cli.config",
        "List all settings: meaning, value, source; and change those of a running broker.",
    ),
    "cert": CommandEntry("flintmq.cli.cert.main", "Make certificates for trying TLS."),
    "log": CommandEntry("flintmq.cli.log.main", "Check the logs of topics."),
    "dump-log": CommandEntry("flintmq.cli.log.dump", "Show and check the files of a log, without a broker."),
    "version": CommandEntry("flintmq.cli.version", "Show the version."),
}

EPILOG = """\b
Start a broker and use it:
  flintmq serve
  flintmq produce greetings "hello world"
  flintmq consume greetings

Commands that talk to a broker take --bootstrap-server, or FLINTMQ_BOOTSTRAP_SERVERS, and look at
localhost:9092 otherwise. A broker with security needs --command-config FILE as well, or
FLINTMQ_SECURITY_PROTOCOL, FLINTMQ_SASL_MECHANISM, FLINTMQ_SASL_USERNAME and FLINTMQ_SASL_PASSWORD.
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 no broker answers
or it rejects the connection."""

main = LazyGroup(
    name="flintmq",
    entries=COMMANDS,
    help="FlintMQ: a Kafka-compatible message broker that starts at once.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, prog_name="flintmq")(main)
