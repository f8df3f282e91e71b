"""`flintmq cert`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "dev": CommandEntry(
        "flintmq.cli.cert.dev", "Make a private CA and certificates for trying TLS and mutual TLS."
    ),
}

command = LazyGroup(
    name="cert",
    entries=COMMANDS,
    help="Make certificates for trying TLS.",
    epilog="\b\nExamples:\n  flintmq cert dev ./certs --host broker-1.example",
)
