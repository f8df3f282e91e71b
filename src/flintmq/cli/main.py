"""The `flintmq` command."""

from __future__ import annotations

import click

from flintmq import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flintmq")
def main() -> None:
    """FlintMQ: a Kafka-compatible message broker that starts at once."""


@main.command()
@click.option("--port", type=int, help="Port for clients (default 9092; 0 takes a free one).")
@click.option("--data-dir", help="Folder for topics and metadata.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any broker setting by its Kafka name.")
def serve(port: int | None, data_dir: str | None, settings: tuple[str, ...]) -> None:
    """Run the broker."""
    import os

    from flintmq.app.serving import serve as run
    from flintmq.settings import load

    given = [tuple(item.partition("=")[::2]) for item in settings]
    if port is not None:
        given.append(("broker_ports", str(port)))
    if data_dir is not None:
        given.append(("log.dirs", data_dir))
    loaded = load(command_line=given, environ=os.environ)  # type: ignore[arg-type]
    raise SystemExit(
        run(loaded, lambda s: click.echo(f"ready {' '.join(map(str, s.listeners))} in {s.took_ms:.0f} ms"))
    )
