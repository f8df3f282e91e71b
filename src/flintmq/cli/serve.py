"""`flintmq serve`: a broker in this process, until a signal stops it.

Standard output carries one line that begins with `ready`; everything for people is on standard error.
"""

from __future__ import annotations

from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import LOCAL_CODES, CommandFailure, Exit, UsageFailure
from flintmq.cli.common.output import note, warn
from flintmq.cli.common.settings_options import load_settings, source_options


@click.command(
    "serve",
    cls=Command,
    examples=(
        "flintmq serve",
        "flintmq serve --port 9095 --data-dir /var/lib/flintmq --host 0.0.0.0",
        "flintmq serve --set num.partitions=3 --set log.retention.ms=7d",
        "FLINTMQ_LOG_RETENTION_MS=1h flintmq serve --config flintmq.yaml",
    ),
    exit_codes={**LOCAL_CODES, Exit.OK: "stopped in order"},
)
@source_options
def command(**sources: Any) -> None:
    """Run a broker.

    Any Kafka client can connect as soon as the line that begins with `ready` appears on standard output.
    Ctrl-C or SIGTERM stops the broker in order; a second one stops it at once.

    Settings come from the command line, then the environment (FLINTMQ_ and the name in capitals), then the
    file, then the defaults.
    """
    loaded = load_settings(**sources)
    for warning in loaded.warnings:
        warn(warning)

    # Only now: a mistake in the settings is told without waiting for the broker to be imported.
    from flintmq.app.banner import StartWatch, banner, ready_line
    from flintmq.app.broker import Broker, StartupReport
    from flintmq.app.serving import serve

    data_dir = loaded.broker.log_dirs[0]

    is_ready = False

    def begun(broker: Broker) -> None:
        watch.progress = broker.progress

    def ready(started: StartupReport) -> None:
        nonlocal is_ready
        is_ready = True
        watch.over()
        for line in banner(started, data_dir):
            click.echo(line, err=True)
        # ORDER: people first, so that whoever waits for the line below finds the rest already written.
        click.echo(ready_line(started))

    with StartWatch(data_dir, note) as watch:
        try:
            code = serve(loaded, begun=begun, ready=ready)
        except OSError as error:
            if is_ready:
                raise CommandFailure(f"the broker cannot go on: {error}") from error
            raise UsageFailure(f"the broker cannot start: {error}") from error
    raise SystemExit(code)
