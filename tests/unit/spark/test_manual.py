"""docs/spark.md names every option of the source and the sink, in the words of the code's own lists."""

from __future__ import annotations

from pathlib import Path

from flintmq.arrow.scan.option_list import OPTIONS
from flintmq.arrow.security_options import SECURITY_OPTIONS, is_security_option
from flintmq.arrow.write.options import COLUMNS, SINK_OPTIONS
from flintmq.spark.session import defaults

MANUAL = (Path(__file__).resolve().parents[3] / "docs" / "spark.md").read_text()


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def test_every_option_of_the_source_is_in_the_manual() -> None:
    table = "\n".join(
        f"| `{one.name}` | {one.scope.value} | {cell(one.default)} | {cell(one.meaning)} |"
        for one in OPTIONS
        if not is_security_option(one.name)
    )
    assert table in MANUAL, f"put this into docs/spark.md:\n{table}"


def test_every_option_of_the_sink_is_in_the_manual() -> None:
    table = "\n".join(
        f"| `{one.name}` | {cell(one.default)} | {cell(one.meaning)} |"
        for one in SINK_OPTIONS
        if not is_security_option(one.name)
    )
    assert table in MANUAL, f"put this into docs/spark.md:\n{table}"


def test_every_option_for_security_is_in_the_manual() -> None:
    rows = [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in SECURITY_OPTIONS]
    table = "\n".join(rows)
    assert table in MANUAL, f"put this into docs/spark.md:\n{table}"


def test_every_column_and_every_default_setting_is_in_the_manual() -> None:
    for name in COLUMNS:
        assert f"| `{name}` |" in MANUAL
    for name in defaults("local[2]"):
        assert f"`{name}" in MANUAL
