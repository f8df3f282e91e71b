"""Log lines: one event is one line, for people or for programs, and never without end (S11)."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.app.observability.logs import (
    REPEATED_MAX,
    REPEATED_WINDOW_S,
    JsonFormatter,
    Logs,
    RepetitionFilter,
    TextFormatter,
)
from flintmq.settings import BrokerConfig


def record(message: str, *args: object, level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("flintmq.test").makeRecord(
        "flintmq.test", level, __file__, 1, message, args, None, extra=extra
    )
    assert isinstance(made, logging.LogRecord)
    return made


@pytest.fixture(autouse=True)
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


def test_text_keeps_what_a_client_wrote_on_one_line() -> None:
    line = TextFormatter().format(record("topic %s", "a\nb\r\x1b[31mred\x9b"))
    assert line.endswith("topic a\\nb\\r\\x1b[31mred\\x9b")


def test_text_is_coloured_only_where_asked_for() -> None:
    warning = record("careful", level=logging.WARNING)
    assert "\x1b[" not in TextFormatter().format(warning)
    assert TextFormatter(colour=True).format(warning).startswith("\x1b[33m")
    assert "\x1b[" not in TextFormatter(colour=True).format(record("all is well"))


def test_json_has_the_fields_and_whatever_the_line_was_given() -> None:
    fields = json.loads(JsonFormatter().format(record("hello %s", "w\nörld", peer="1.2.3.4:5", obj=object)))
    assert fields["message"] == "hello w\nörld"
    assert (fields["level"], fields["logger"], fields["peer"]) == ("INFO", "flintmq.test", "1.2.3.4:5")
    assert fields["time"].endswith("Z")
    assert fields["obj"] == "<class 'object'>"


def test_json_carries_the_traceback() -> None:
    try:
        raise ValueError("inside")
    except ValueError as error:
        made = record("failed")
        made.exc_info = (ValueError, error, error.__traceback__)
    line = JsonFormatter().format(made)
    assert "\n" not in line
    assert "ValueError: inside" in json.loads(line)["exception"]


def test_a_line_that_repeats_is_held_back_and_summed_up() -> None:
    now = 0.0
    repetitions = RepetitionFilter(lambda: now)
    passed = sum(repetitions.filter(record("no room for %s", number)) for number in range(REPEATED_MAX + 230))
    assert passed == REPEATED_MAX
    assert repetitions.filter(record("something else"))
    now += REPEATED_WINDOW_S
    later = record("no room for %s", "more")
    assert repetitions.filter(later)
    assert later.getMessage() == "no room for more (and 230 more like this in the 10 s before)"
    again = record("no room for %s", "more")
    assert repetitions.filter(again)
    assert again.getMessage() == "no room for more"


def test_the_file_gets_json_and_is_put_aside_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "broker.log"
    config = BrokerConfig(flint_log_file=str(path), flint_log_file_max_bytes=4096, flint_log_file_count=3)
    shown = io.StringIO()
    logs = Logs(config, stream=shown)
    logs.start()
    try:
        for number in range(200):
            logging.getLogger(f"flintmq.test{number}").info(f"a line of its own, number {number}")
    finally:
        logs.stop()
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["broker.log", "broker.log.1", "broker.log.2"]
    assert all(file.stat().st_size <= 4096 for file in files)
    last = [json.loads(line) for line in path.read_text().splitlines()][-1]
    assert last["message"] == "a line of its own, number 199"
    assert len(shown.getvalue().splitlines()) == 200
    logging.getLogger("flintmq.test").info("after the end")
    assert "after the end" not in shown.getvalue() + path.read_text()


def test_standard_error_can_be_json_and_obeys_the_level() -> None:
    shown = io.StringIO()
    logs = Logs(BrokerConfig(flint_log_format="json", flint_log_level="WARNING"), stream=shown)
    logs.start()
    try:
        logging.getLogger("flintmq.test").info("quiet")
        logging.getLogger("flintmq.test").warning("loud", extra={"peer": "x:1"})
    finally:
        logs.stop()
    (line,) = shown.getvalue().splitlines()
    assert (json.loads(line)["message"], json.loads(line)["peer"]) == ("loud", "x:1")
