"""`python -m support.log.compaction_digest`: a log from a seed is compacted several times; what is left, as a digest.

One line for each module that a wheel may have compiled, with its file, and the digest last. It must come out the same
whether they are compiled or not.
"""

from __future__ import annotations

import hashlib
from random import Random

from flintmq.effects import read_file
from flintmq.records import record_walk
from flintmq.records.compression import Codec
from flintmq.storage.compaction import batch_filter, offset_map
from flintmq.storage.compaction.job import CompactionSummary, encode_event
from support.log.on_real_disk import NOW_MS, LogOnDisk

SEED = 5
ROUNDS = 6
BATCHES = 120
DEDUPE_BYTES = 48_000
"""So little that keys move into the table, and that several passes are needed."""


def fill(log: LogOnDisk, random: Random) -> None:
    for number in range(BATCHES):
        producer_id = random.choice((-1, 1, 7))
        count = random.randint(1, 60)
        pairs = [
            (
                b"key-%d" % random.randrange(3000) if random.random() < 0.98 else None,
                None if random.random() < 0.1 else random.randbytes(random.randrange(200)),
            )
            for _ in range(count)
        ]
        log.append(
            pairs,
            timestamps=[NOW_MS + random.randint(-(10**6), 10**6) for _ in range(count)],
            codec=random.choice(list(Codec)),
            append_time=NOW_MS if random.random() < 0.2 else None,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=producer_id == 1,
        )
        if producer_id == 1:
            log.append_marker(1, log.end_offset - count, abort=random.random() < 0.5)
        if random.random() < 0.1:
            log.roll()
    log.roll()


def main() -> None:
    log, random, digest, dirty = LogOnDisk(), Random(SEED), hashlib.sha256(), 0
    for number in range(ROUNDS):
        fill(log, random)
        while dirty < log.bases[-1]:
            events = log.clean(
                dirty,
                now_ms=NOW_MS + number * 700,
                dedupe_bytes=DEDUPE_BYTES,
                segment_bytes=200_000,
                producers={7: (0, log.bases[-1] // 2)},
            )
            assert isinstance(events[-1], CompactionSummary), events[-1]
            dirty = events[-1].next_dirty_offset
            for event in events:
                digest.update(encode_event(event))
    for name in sorted(log.disk.list(log.directory)):
        digest.update(name.encode())
        digest.update(read_file(log.disk, f"{log.directory}/{name}"))
    for module in (record_walk, offset_map, batch_filter):
        print(module.__name__, module.__file__)
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
