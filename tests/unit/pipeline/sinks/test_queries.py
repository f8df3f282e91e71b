"""Sinks as programs make them: what a file cannot say is refused all the same."""

from __future__ import annotations

from unittest.mock import MagicMock, Mock

import pytest

from flintmq.pipeline import JdbcSink, PipelineError, Sink, TableSink

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")


@pytest.mark.parametrize(
    "sink",
    [
        TableSink(name="z", from_="a", table="t", mode="update"),
        JdbcSink(name="z", from_="a", jdbc="jdbc:x", into="t", mode="update"),
    ],
    ids=["table", "jdbc"],
)
def test_rows_that_replace_others_are_refused_before_a_row_is_written(sink: Sink) -> None:
    from flintmq.pipeline.sinks.queries import sink_writer

    with pytest.raises(PipelineError, match="rows that replace others cannot be written here yet"):
        sink_writer(MagicMock(), sink, Mock(), run="", once=True)
