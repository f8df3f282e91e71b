"""Progress: nothing for what is quick, a changing line at a terminal, lines now and then elsewhere."""

from __future__ import annotations

import pytest

from flintmq.cli.common.progress import QUIET_S, Progress, byte_share


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_takes_less_than_two_seconds_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(now=clock, is_terminal=True) as progress:
        progress.tell_bytes("verifying", 0, 2)
        clock.now += 1.9
        progress.tell_bytes("verifying", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_there_is_a_plain_line_every_five_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with Progress(now=clock, is_terminal=False) as progress:
        for _ in range(13):
            progress.tell_bytes("verifying t-0", int(clock.now) - 100, 20 * 1024)
            clock.now += 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.splitlines() == ["verifying t-0: 0% of 20.0 KiB"] * 3


def test_at_a_terminal_one_bar_changes_and_goes_in_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock = Clock()
    with Progress(now=clock, is_terminal=True) as progress:
        for done in (0, 1, 2, 3):
            progress.tell_bytes("verifying", done, 4)
            clock.now += 3
    error = capsys.readouterr().err
    assert [f" {part}% of 4 B" in error for part in (0, 25, 50, 75)] == [False, True, True, True]
    # The cursor goes up and the line is cleared.
    assert error.endswith("\x1b[2K")


def test_a_job_ends_with_its_last_piece_and_the_next_is_quiet_at_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with Progress("writing", now=clock, is_terminal=False) as progress:
        progress.tell_pieces(0, 10)
        assert capsys.readouterr().err == ""
        clock.now += QUIET_S
        progress.tell_pieces(4, 10)
        progress.tell_pieces(5, 10)
        assert capsys.readouterr().err == "writing: 4 of 10 pieces\n"
        progress.tell_pieces(10, 10)
        clock.now += 1
        progress.tell_pieces(1, 10)
        assert capsys.readouterr().err == ""


def test_a_share_is_never_more_than_all() -> None:
    assert byte_share(5, 4) == "100% of 4 B"
    assert byte_share(1, 3) == "33% of 3 B"


def test_a_share_of_what_is_not_known_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(now=clock, is_terminal=False) as progress:
        progress.tell_bytes("compacting t-0", 0, 0)
        clock.now += 3
        progress.tell_bytes("compacting t-0", 0, 0)
    assert capsys.readouterr().err == "compacting t-0\n"
