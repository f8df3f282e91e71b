"""Progress: nothing for what is quick, a changing line at a terminal, lines now and then elsewhere."""

from __future__ import annotations

import pytest

from flintmq.cli.common.damage import UNKNOWN_END, ranges_fields, ranges_text
from flintmq.cli.common.progress import Progress, share


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_takes_less_than_two_seconds_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(now=clock, is_terminal=True) as progress:
        clock.now += 1.9
        progress.tell("verifying", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_there_is_a_plain_line_every_five_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with Progress(now=clock, is_terminal=False) as progress:
        for _ in range(12):
            clock.now += 1
            progress.tell("verifying t-0", int(clock.now) - 100, 20 * 1024)
    out, error = capsys.readouterr()
    assert out == ""
    assert error.splitlines() == ["verifying t-0: 0% of 20.0 KiB"] * 3


def test_at_a_terminal_one_line_changes_and_goes_in_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(now=clock, is_terminal=True) as progress:
        for done in (1, 2, 3):
            clock.now += 3
            progress.tell("verifying", done, 4)
    error = capsys.readouterr().err
    assert error == "".join(f"\r\x1b[Kverifying: {part}% of 4 B" for part in (25, 50, 75)) + "\r\x1b[K"


def test_a_share_is_never_more_than_all() -> None:
    assert share(5, 4) == "100% of 4 B"
    assert share(1, 3) == "33% of 3 B"


def test_a_share_of_what_is_not_known_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(now=clock, is_terminal=False) as progress:
        clock.now += 3
        progress.tell("compacting t-0", 0, 0)
    assert capsys.readouterr().err == "compacting t-0\n"


def test_ranges_are_told_shortly() -> None:
    assert ranges_text([], 0) == "-"
    assert ranges_text([(3, 4)], 1) == "offsets 3"
    assert ranges_text([(3, 6), (9, UNKNOWN_END)], 2) == "offsets 3–5, 9 and on"
    many = [(at, at + 1) for at in range(0, 20, 2)]
    assert ranges_text(many, 1200) == "offsets 0, 2, 4, 6, 8, and 1,195 more"
    assert ranges_fields([(3, 6), (9, UNKNOWN_END)]) == [
        {"first_offset": 3, "last_offset": 5}, {"first_offset": 9, "last_offset": None},
    ]  # fmt: skip
