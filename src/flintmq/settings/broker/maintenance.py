"""Work on logs in the background: retention, compaction, scrubbing, checkpoints, recovery."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import UpdateMode, setting
from flintmq.settings.kinds import (
    SettingKind,
    at_least,
    between,
)

# As Kafka has it: the largest number of its type.
_UNLIMITED_RATE = 1.7976931348623157e308


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class MaintenanceConfig:
    __slots__ = ()

    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        SettingKind.LONG,
        300_000,
        check=at_least(1),
        doc="How often logs are looked through for records that have had their time.",
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        SettingKind.BOOLEAN,
        True,
        doc="Whether logs are compacted by themselves. On demand they are in any case.",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        SettingKind.LONG,
        15_000,
        check=at_least(0),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="How long compaction rests when no log needs it.",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        SettingKind.LONG,
        128 << 20,
        check=at_least(1 << 20),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="The memory for keys while a log is compacted, in a process of its own. What does not fit is left for "
        "another pass.",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        SettingKind.DOUBLE,
        0.9,
        check=between(0.01, 1.0),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="How full the memory for keys may get.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        SettingKind.DOUBLE,
        _UNLIMITED_RATE,
        check=at_least(1),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="What compaction may read and write in a second, together.",
    )
    flint_scrub_bytes_per_second: int = setting(
        "flint.scrub.bytes.per.second",
        SettingKind.INT,
        4 << 20,
        check=at_least(0),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="How fast stored batches are read again to see whether they are still what was written; 0 is never.",
    )
    flint_scrub_interval_ms: int = setting(
        "flint.scrub.interval.ms",
        SettingKind.LONG,
        7 * 86_400_000,
        check=at_least(0),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="How long after the beginning of one such round the next begins.",
    )

    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        SettingKind.INT,
        60_000,
        check=at_least(0),
        doc="How often the recovery points are written, which bound what is scanned after a crash.",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        SettingKind.INT,
        86_400_000,
        check=at_least(1),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="How long the sequence numbers of an idle producer are remembered.",
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        SettingKind.INT,
        2,
        check=at_least(1),
        doc="Threads that recover logs at the start and sync them at the stop.",
    )
    background_threads: int = setting(
        "background.threads",
        SettingKind.INT,
        4,
        check=at_least(1),
        doc="Threads for blocking work: syncing, reading cold data, deleting files. Kafka's default is 10; "
        "they share one interpreter here, so that a few are enough.",
    )
