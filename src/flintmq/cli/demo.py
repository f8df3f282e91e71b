"""`flintmq demo`: a broker, a pipeline and a lake at work, to look at."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import Exit
from flintmq.cli.lake.options import check_installed


@click.command(
    "demo",
    cls=Command,
    examples=(
        "flintmq demo",
        "flintmq demo --seconds 20 --rate 2000",
        "flintmq demo --keep /tmp/shop",
    ),
    exit_codes={
        Exit.OK: "done, and the sums add up",
        Exit.FAILED: "something failed, or the sums do not add up",
        Exit.USAGE: "wrong usage",
    },
)
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=1, max=86_400),
    help="How long the shop is open. What is on its way then is waited for.",
)
@click.option(
    "--rate",
    default=500.0,
    show_default=True,
    type=click.FloatRange(min=1, max=20_000),
    help="Clicks and orders a second.",
)
@click.option(
    "--keep", default=None, metavar="DIR", help="Keep broker, lake and pipeline in this folder. [removed]"
)
@click.option("--seed", default=1, show_default=True, help="Another seed, another day in the shop.")
@click.pass_context
def command(ctx: click.Context, seconds: float, rate: float, keep: str | None, seed: int) -> None:
    """Watch a shop at work: broker, pipeline and lake on this machine.

    A broker is started on a free port, with a temporary folder. A shop sends orders and clicks to it, one in a
    hundred of them spoiled. A pipeline that is declared in a file sums up revenue by country and window, joins orders
    with customers and clicks with orders, and puts aside what is spoiled; all orders also go to a Delta table. You
    see it live. It ends by itself or on Ctrl-C, says whether all adds up, and leaves nothing behind.
    """
    check_installed()
    from flintmq.demo.conductor import conduct
    from flintmq.demo.view import LineDisplay, TerminalDisplay, own_output

    with own_output() as output:
        show = TerminalDisplay(output) if output.isatty() else LineDisplay(output)
        ctx.exit(conduct(seconds=seconds, rate=rate, keep=keep, seed=seed, show=show))
