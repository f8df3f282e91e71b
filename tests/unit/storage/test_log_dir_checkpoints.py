"""Checkpoints of the data folder, written from threads by requests and by housekeeping."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

from flintmq.effects import read_file
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock
from flintmq.settings import TopicConfig
from flintmq.storage.durability import offset_checkpoint
from flintmq.storage.log_dir import AssignedPartition, LogDir
from support.wire.batches import append, produced

_THREADS = 4
_ROUNDS = 25


def test_the_last_of_many_written_at_once_has_the_newest_starts(tmp_path: Path) -> None:
    with closing(asyncio.new_event_loop()) as loop, closing(LoopExecutor(loop)) as executor:
        disk = RealDisk()
        folder = LogDir(str(tmp_path), disk=disk, clock=SystemClock(), executor=executor, descriptors=16)
        logs = [
            folder.create(AssignedPartition("t", index, bytes(16), TopicConfig()))
            for index in range(_THREADS)
        ]
        for log in logs:
            append(log, produced(b"x"))
        together = Barrier(_THREADS, timeout=10)

        def delete_often(index: int) -> None:
            for start in range(1, _ROUNDS + 1):
                together.wait()
                logs[index].start_offset = start
                folder.checkpoint_starts()

        with ThreadPoolExecutor(_THREADS) as threads:
            for done in [threads.submit(delete_often, index) for index in range(_THREADS)]:
                done.result()
        written = offset_checkpoint.decode(read_file(disk, f"{tmp_path}/{offset_checkpoint.LOG_START}"))
        assert written == {("t", index): _ROUNDS for index in range(_THREADS)}
