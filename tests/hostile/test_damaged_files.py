"""Files that were damaged while the broker was stopped, and two brokers on one folder (R1, R2, R5, S5).

What can be rebuilt is rebuilt, what cannot be trusted is refused, what is not damaged is served, and a start that
would lose something does not happen: it says what is wrong and ends with a code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.errors import ErrorCode
from support.broker.broker_process import BrokerFailed, BrokerProcess
from support.wire.wire import Wire, batch_of, fetch_request, values_of

BATCHES, PER_SEGMENT, SIZE = 40, 5, 200_000
COUNT = BATCHES
ARGS = ("--set", "flint.rest.port=-1", "--set", "auto.create.topics.enable=false")


def value(number: int) -> bytes:
    return b"%d " % number + bytes(SIZE)


def numbered(content: bytes, sequence: int) -> bytes:
    """A batch of one idempotent producer."""
    return batch_of(content, producer_id=7, producer_epoch=0, base_sequence=sequence)


@pytest.fixture
def stopped(tmp_path: Path) -> BrokerProcess:
    """A broker that wrote eight segments and was stopped in order."""
    broker = BrokerProcess(tmp_path / "data", ARGS)
    with broker, Wire(broker.address) as wire:
        wire.create_topic("t", segment_bytes=str(PER_SEGMENT * SIZE + 10_000))
        for number in range(BATCHES):
            batch = numbered(value(number), number)
            assert wire.produce("t", batch).base_offset == number
        wire.create_topic("other")
        wire.produce("other", batch_of(b"fine"))
    return broker


def files(broker: BrokerProcess, suffix: str) -> list[Path]:
    return sorted((broker.data_dir / "t-0").glob(f"*{suffix}"))


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def everything(wire: Wire) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < COUNT:
        found += values_of(wire.fetch(fetch_request("t", {0: len(found)}, partition_max_bytes=1 << 20)))[0]
    return found


def junk_in(suffix: str) -> Callable[[BrokerProcess], None]:
    def damage(broker: BrokerProcess) -> None:
        for path in files(broker, suffix):
            path.write_bytes(b"\xff" * 97)

    return damage


def missing(suffix: str) -> Callable[[BrokerProcess], None]:
    def damage(broker: BrokerProcess) -> None:
        for path in files(broker, suffix):
            path.unlink()

    return damage


def junk_in_checkpoints(broker: BrokerProcess) -> None:
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "clean-shutdown"):
        (broker.data_dir / name).write_bytes(b"\0nonsense\n-1\n")


def junk_in_epochs(broker: BrokerProcess) -> None:
    (broker.data_dir / "t-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\nx y z\n")


REBUILT = {
    "junk in offset indexes": junk_in(".index"),
    "junk in time indexes": junk_in(".timeindex"),
    "no offset indexes": missing(".index"),
    "no time indexes": missing(".timeindex"),
    "junk in producer snapshots": junk_in(".snapshot"),
    "no producer snapshots": missing(".snapshot"),
    "junk in all checkpoints": junk_in_checkpoints,
    "junk in the epochs": junk_in_epochs,
}


@pytest.mark.parametrize("what", REBUILT)
@pytest.mark.parametrize("clean", [True, False], ids=["after a stop", "after a crash"])
def test_what_can_be_rebuilt_is(stopped: BrokerProcess, what: str, clean: bool) -> None:
    if not clean:
        (stopped.data_dir / "clean-shutdown").unlink()
    REBUILT[what](stopped)
    with stopped, Wire(stopped.address) as wire:
        assert everything(wire) == [value(number) for number in range(COUNT)]
        # A retry of the last batch is known for one, the next one is in order.
        retry = numbered(value(BATCHES - 1), BATCHES - 1)
        assert wire.produce("t", retry).base_offset == BATCHES - 1
        following = numbered(b"next", BATCHES)
        assert wire.produce("t", following).base_offset == BATCHES
    assert "Traceback" not in stopped.errors


def test_a_torn_end_after_a_crash_is_cut_and_reported(stopped: BrokerProcess) -> None:
    (stopped.data_dir / "clean-shutdown").unlink()
    (stopped.data_dir / "recovery-point-offset-checkpoint").unlink()
    last = files(stopped, ".log")[-1]
    overwrite(last, last.stat().st_size - 1000, bytes(500) + b"\xff" * 400)
    with stopped, Wire(stopped.address) as wire:
        assert wire.produce("other", batch_of(b"x")).base_offset == 1
        written = wire.produce("t", batch_of(b"after the cut"))
        assert written.base_offset == BATCHES - 1
        assert values_of(wire.fetch(fetch_request("t", {0: BATCHES - 2})))[0] == [
            value(BATCHES - 2),
            b"after the cut",
        ]
    assert "t-0" in stopped.errors
    assert "Traceback" not in stopped.errors


def test_a_damaged_segment_below_the_recovery_point_is_refused_and_the_rest_is_served(
    stopped: BrokerProcess,
) -> None:
    """It was safe once: its records are not cut, and never served as if they were right."""
    (stopped.data_dir / "clean-shutdown").unlink()
    damaged = files(stopped, ".log")[2]
    overwrite(damaged, 0, b"\xff" * 64)
    with stopped, Wire(stopped.address) as wire:
        first = 2 * PER_SEGMENT
        answer = wire.fetch(fetch_request("t", {0: first})).responses[0].partitions[0]
        assert answer.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR), (
            answer.error_code
        )
        assert values_of(wire.fetch(fetch_request("t", {0: 0})))[0][0] == value(0)
        assert values_of(wire.fetch(fetch_request("other", {0: 0}))) == {0: [b"fine"]}
        assert wire.produce("other", batch_of(b"x")).base_offset == 1
    assert "Traceback" not in stopped.errors


REFUSED: dict[str, tuple[Callable[[BrokerProcess], object], str]] = {
    "a damaged metadata journal": (
        lambda broker: overwrite(broker.data_dir / "metadata" / "journal", 40, b"\xff" * 20),
        "is damaged at position",
    ),
    "a journal that is something else": (
        lambda broker: (broker.data_dir / "metadata" / "journal").write_bytes(b"hello, world, this is text"),
        "does not begin as a file of the metadata store",
    ),
    "a snapshot without its journal": (
        lambda broker: (
            (broker.data_dir / "metadata" / "journal").rename(broker.data_dir / "metadata" / "snapshot")
            and None
        ),
        "is missing",
    ),
    "a damaged snapshot": (
        lambda broker: (
            (broker.data_dir / "metadata" / "snapshot").write_bytes(b"FMQS\1\0\0\0" + b"\xff" * 50) and None
        ),
        "is damaged",
    ),
    "a format from the future": (
        lambda broker: (broker.data_dir / "format").write_text('{"format": 99}'),
        "newer FlintMQ",
    ),
    "a format that makes no sense": (
        lambda broker: (broker.data_dir / "format").write_bytes(b"\0"),
        "makes no sense",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_start_that_would_lose_something_is_refused_with_a_reason(
    stopped: BrokerProcess, what: str
) -> None:
    damage, said = REFUSED[what]
    damage(stopped)
    before = {path: path.read_bytes() for path in files(stopped, ".log")}
    with pytest.raises(BrokerFailed):
        stopped.start()
    assert stopped.wait() not in (0, None)
    assert said in stopped.errors
    assert "Traceback" not in stopped.errors
    assert {path: path.read_bytes() for path in files(stopped, ".log")} == before, (
        "it touched what it refused"
    )


def test_two_brokers_do_not_share_a_folder(stopped: BrokerProcess) -> None:
    with stopped, Wire(stopped.address) as wire:
        second = BrokerProcess(stopped.data_dir, ARGS)
        second.error_log = stopped.error_log.with_name("second.stderr")
        with pytest.raises(BrokerFailed):
            second.start()
        assert second.wait() != 0
        assert "in use by another broker" in second.errors
        assert "Traceback" not in second.errors
        # The first did not notice.
        assert wire.produce("other", batch_of(b"x")).base_offset == 1
        assert everything(wire) == [value(number) for number in range(COUNT)]
