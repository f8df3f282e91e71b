"""`flintmq dump-log` on the files of a stopped broker."""

from __future__ import annotations

from pathlib import Path

from support.broker.broker_process import StartBroker
from support.cli.command import run


def test_dump_log_shows_a_stopped_broker_s_files_and_finds_damage(start_broker: StartBroker) -> None:
    """S5."""
    broker = start_broker("--set", "log.segment.bytes=1MB", "--set", "log.index.interval.bytes=4k")
    lines = b"".join(b"%0100d\n" % number for number in range(30_000))
    run("produce", "t", "--header", "h=1", "-b", broker.address, stdin=lines)
    assert broker.stop() == 0
    data = str(broker.data_dir)
    assert "all sound" in run("dump-log", data).out
    reports = [one for one in run("dump-log", data, "--json").json_lines if one["type"] == "file"]
    kinds = {one["kind"] for one in reports}
    assert kinds == {
        "segment", "offset index", "time index", "producer snapshot", "leader epochs", "offset checkpoint",
    }  # fmt: skip
    assert sum(one["records"] for one in reports if one["kind"] == "segment") == 30_000
    segment = broker.data_dir / "t-0" / f"{0:020d}.log"
    shown = run("dump-log", str(segment), "--records", "--json").json_lines
    (first, *_) = (one for one in shown if one["type"] == "record")
    assert (first["offset"], first["value"], first["headers"]) == (
        0,
        f"{0:0100d}",
        [{"name": "h", "value": "1"}],
    )
    assert "value" in run("dump-log", str(segment), "--records").out

    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    damaged = run("dump-log", data, code=1)
    assert "fails its CRC" in damaged.out
    assert "1 damaged" in damaged.out


def test_dump_log_refuses_what_is_no_log(tmp_path: Path) -> None:
    assert "holds no files" in run("dump-log", str(tmp_path), code=1).error
    assert "No such file" in run("dump-log", str(tmp_path / f"{0:020d}.log"), code=1).error
    other = tmp_path / "notes.txt"
    other.write_text("x")
    assert "not the name" in run("dump-log", str(other), code=1).error
