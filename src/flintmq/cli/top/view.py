"""How `flintmq top` looks: rows of words for any output, and the same as one screen for a terminal.

Rich is imported when a screen is made, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.cli.common.output import Row, duration_text, size
from flintmq.cli.top.rates import BrokerRates

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

API_COLUMNS = ("api", "requests/s", "errors/s", "in/s", "out/s", "p50 ms", "p99 ms")
PARTITION_COLUMNS = ("partition", "records/s", "size", "end offset")
CLIENT_COLUMNS = ("client", "version", "connections")


def summary_rows(rates: BrokerRates) -> list[tuple[str, str]]:
    share = f" of {size(rates.budget_bytes)}" if rates.budget_bytes else ""
    state = "ready" if rates.ready else "not ready"
    offline = f", {rates.logs_offline} offline" if rates.logs_offline else ""
    return [
        ("broker", f"FlintMQ {rates.version}, {state}, up {duration_text(rates.uptime_s)}"),
        ("traffic", f"{amount(rates.requests_per_s)} requests/s, {amount(rates.errors_per_s)} errors/s"),
        (
            "data",
            f"in {rate(rates.bytes_in_per_s)} ({amount(rates.records_in_per_s)} records/s), "
            f"out {rate(rates.bytes_out_per_s)}",
        ),
        ("clients", f"{rates.connections} connections, {rates.requests_in_flight} requests in flight"),
        (
            "logs",
            f"{rates.topics} topics, {rates.partitions} partitions{offline}, {size(rates.log_bytes)}",
        ),
        ("disk", f"{size(rates.disk_free_bytes)} free of {size(rates.disk_total_bytes)}"),
        (
            "process",
            f"{rates.cpu_cores:.0%} of a core, {size(rates.resident_bytes)} resident, "
            f"{size(rates.budget_used_bytes)}{share} for requests, loop late by {rates.loop_delay_ms:.1f} ms",
        ),
    ]


def api_rows(rates: BrokerRates) -> list[Row]:
    return [
        (
            one.name,
            amount(one.requests_per_s),
            amount(one.errors_per_s),
            rate(one.bytes_in_per_s),
            rate(one.bytes_out_per_s),
            _ms(one.p50_ms),
            _ms(one.p99_ms),
        )
        for one in rates.apis
    ]


def partition_rows(rates: BrokerRates) -> list[Row]:
    return [
        (f"{one.topic}-{one.partition}", amount(one.records_per_s), size(one.size_bytes), str(one.end_offset))
        for one in rates.busiest_partitions
    ]


def client_rows(rates: BrokerRates) -> list[Row]:
    return [(one.software, one.version, str(one.connections)) for one in rates.clients]


def screen(rates: BrokerRates) -> RenderableType:
    from rich.columns import Columns
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 2))
    for name, words in summary_rows(rates):
        head.add_row(Text(name, style="bold cyan"), Text(words))
    return Group(
        head,
        _table(API_COLUMNS, api_rows(rates)),
        Columns(
            [
                _table(PARTITION_COLUMNS, partition_rows(rates)),
                _table(CLIENT_COLUMNS, client_rows(rates)),
            ]
        ),
        Text("Ctrl-C ends", style="dim"),
    )


def _table(columns: tuple[str, ...], rows: list[Row]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def amount(number: float) -> str:
    if number < 10:
        return f"{number:.1f}"
    return f"{number:,.0f}"


def rate(bytes_per_s: float) -> str:
    return f"{size(round(bytes_per_s))}/s"


def _ms(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.2f}"
