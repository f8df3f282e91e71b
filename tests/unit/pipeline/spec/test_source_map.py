"""However a text is written in YAML, its characters know where they stand."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flintmq.pipeline import Pipeline, Trigger, Watermark
from flintmq.pipeline.spec.document import compose, origins
from flintmq.pipeline.spec.source_map import LocatedText, SourceFile


def text_of(written: str) -> tuple[SourceFile, LocatedText]:
    source = SourceFile("f", written)
    node = compose(source)
    assert isinstance(node, yaml.MappingNode)
    value = node.value[0][1]
    return source, LocatedText(value.value, source, origins(source, value))


@pytest.mark.parametrize(
    "written",
    [
        "a: select one WORD two\n",
        "a: 'it''s one WORD two'\n",
        'a: "tab\\t quote\\" \\u00e9 one WORD two"\n',
        "a: |\n  select one\n    WORD two\n",
        "a: |2-\n    select one\n\n  WORD two\n",
        "a: >\n  select one\n  WORD two\n\n  three\n",
        "a: select one\n  two\n  WORD three\n",
        'a: "select one\n  two \\\n  WORD three"\n',
        "a: &anchor !!str 'one WORD two'\n",
        "# é\r\na: one\r\n  WORD\r\n",
    ],
)
def test_a_word_is_found_where_it_is_written(written: str) -> None:
    source, text = text_of(written)
    place = text.place_at(text.index("WORD"))
    assert place == source.place(written.index("WORD"))
    assert place.text[place.column - 1 :].startswith("WORD")


@given(
    st.text(alphabet="ab \t\n'\"\\:#é\U0001f600-", min_size=1), st.sampled_from(["'", '"', "|", ">", None])
)
def test_whatever_is_written_every_character_that_shows_is_where_it_says(
    value: str, style: str | None
) -> None:
    written = yaml.dump({"a": value}, default_style=style, allow_unicode=True, width=20)
    _, text = text_of(written)
    assert text == value
    for at, char in enumerate(text):
        index = text._origins[at]
        assert 0 <= index <= len(written)
        if char.isalpha() and written[index] != "\\":
            assert written[index] == char


def test_a_text_is_the_str_it_looks_like() -> None:
    _, text = text_of("a: bc\n")
    assert text == "bc"
    assert {text: 1} == {"bc": 1}
    assert type(str(text)) is str


def test_watermarks_and_triggers_reach_spark_in_its_words() -> None:
    pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
    from flintmq.pipeline.sinks.queries import triggered
    from flintmq.pipeline.sources.frames import with_watermark

    frame, writer = Mock(), Mock()
    with_watermark(frame, Watermark(column="at", delay="10m"))
    frame.withWatermark.assert_called_once_with("at", "10 minutes")
    triggered(writer, Pipeline(name="x", sources={}, sinks={}, trigger=Trigger(every="10s")), once=False)
    writer.trigger.assert_called_once_with(processingTime="10 seconds")
