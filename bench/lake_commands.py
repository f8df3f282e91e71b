"""How long small `flintmq lake` commands take, from the shell and back.

    python -m bench.lake_commands [--rounds 5] [--spark]

A broker of its own, a topic of a few records, tables in a temporary folder. `--spark` also measures a sync of one row
on a Spark of its own (`--master`), and a sync on the session of `flintmq spark up`, of a topic with more partitions
than a command takes on without Spark. Wall-clock seconds, the best of the rounds: run it on a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from flintmq.lake.limits import IN_PROCESS_LIMITS

FORMATS = ("parquet", "iceberg", "delta")
NOBODY = "127.0.0.1:1"
_STOP_S = 30.0


class Shell:
    def __init__(self, folder: str, rounds: int) -> None:
        self.folder = folder
        self.address = ""
        self._rounds = rounds
        self._environment = {**os.environ, "XDG_CACHE_HOME": os.path.join(folder, "cache")}

    def run(self, *arguments: str, code: int = 0, lines: str = "") -> float:
        begun = time.monotonic()
        done = subprocess.run(
            self._command(arguments), capture_output=True, text=True, env=self._environment, input=lines
        )
        seconds = time.monotonic() - begun
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return seconds

    def tell(self, name: str, *arguments: str, code: int = 0, one_row: str | None = None) -> None:
        """Print the best round; before each, a record is written to the topic `one_row`."""
        seconds = []
        for _ in range(self._rounds):
            if one_row is not None:
                self.run("produce", one_row, "hello", "-b", self.address)
            seconds.append(self.run(*arguments, code=code))
        click.echo(f"| {name} | {min(seconds):.2f} |")

    @contextmanager
    def broker(self) -> Iterator[None]:
        arguments = (
            "serve",
            "--port",
            "0",
            "--data-dir",
            os.path.join(self.folder, "data"),
            "--set",
            "flint.rest.port=-1",
        )
        with subprocess.Popen(
            self._command(arguments), stdout=subprocess.PIPE, text=True, env=self._environment
        ) as process:
            assert process.stdout is not None
            line = next(one for one in process.stdout if one.startswith("ready"))
            found = re.search(r"\S+:\d+", line)
            assert found is not None, line
            self.address = found[0].rstrip(",;")
            try:
                yield
            finally:
                process.terminate()
                process.wait(_STOP_S)

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "flintmq", *arguments]


def measure(shell: Shell, *, with_spark: bool) -> None:
    broker = ("-b", shell.address)
    shell.run("topic", "create", "orders", *broker)
    click.echo("| command | seconds |\n|---|---|")
    for format in FORMATS:
        place = ("--to", os.path.join(shell.folder, format), "--format", format)
        shell.run("produce", "orders", "hello", *broker)
        shell.run("lake", "sync", "orders", *place, *broker)
        shell.tell(f"{format}: sync, nothing new", "lake", "sync", "orders", *place, *broker)
        shell.tell(f"{format}: sync, one row", "lake", "sync", "orders", *place, *broker, one_row="orders")
        shell.tell(f"{format}: status", "lake", "status", "orders", *place, *broker)
        shell.tell(f"{format}: a misspelt topic", "lake", "sync", "ordesr", *place, *broker, code=1)
        shell.tell(f"{format}: no broker", "lake", "sync", "orders", *place, "-b", NOBODY, code=3)
    if not with_spark:
        return
    lake = ("--to", os.path.join(shell.folder, "parquet"))
    master = ("--master", "local[*]")
    sync = ("lake", "sync", "orders", *lake, *broker)
    shell.tell("one row on a Spark of its own", *sync, *master, one_row="orders")
    count = IN_PROCESS_LIMITS.items_max + 1
    click.echo(f"| `spark up` | {shell.run('spark', 'up'):.2f} |")
    try:
        for number in range(2):
            topic = f"wide-{number}"
            shell.run("topic", "create", topic, "--partitions", str(count), *broker)
            # So many keys that no partition stays empty.
            lines = "".join(f"{key}:hello\n" for key in range(100 * count))
            shell.run("produce", topic, "--key-separator", ":", *broker, lines=lines)
            seconds = shell.run("lake", "sync", topic, *lake, *broker)
            click.echo(f"| {count} files with `spark up`, command {number + 1} | {seconds:.2f} |")
    finally:
        shell.run("spark", "down")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.lake_commands", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spark", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(folder, options.rounds)
        with shell.broker():
            measure(shell, with_spark=options.spark)


if __name__ == "__main__":
    main()
