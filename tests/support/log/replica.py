"""The life of one log that is a replica's: now a leader's, now a follower's, and truncated in between.

As a follower's it takes over batches of a leader that the test plays: with gaps, as of a compacted log.
"""

from __future__ import annotations

from flintmq.errors import FlintError, StorageError
from flintmq.partitions.partition import Role
from flintmq.records.markers import Marker, marker_batch
from flintmq.storage.log import Log
from flintmq.storage.truncation.truncation import Truncation
from support.log.life import LogLife
from support.log.model import Written, placed

ME, OTHER = 0, 1


class ReplicaLife(LogLife):
    is_replicated = True
    gap = 0
    """How many offsets are missing before the next batch of the leader."""
    held: list[Written] | None = None
    """Batches of the leader that wait to be written together."""

    def _serve(self, log: Log) -> None:
        super()._serve(log)
        self._lead()

    # ---- roles

    def _lead(self) -> None:
        self.model.leader_epoch += 1
        self.partition.lead(
            node_id=ME, leader_epoch=self.model.leader_epoch, replicas=[ME, OTHER], isr=[ME, OTHER]
        )

    def lead(self) -> None:
        if self.log.truncation is None and self.log.offline is None:
            self._lead()

    def follow(self) -> None:
        self.model.leader_epoch += 1
        self.partition.follow(leader=OTHER, leader_epoch=self.model.leader_epoch, isr=[OTHER])

    @property
    def is_following(self) -> bool:
        return self.partition.role is Role.FOLLOWER

    def advance(self, share: float) -> None:
        """Raise the high watermark part of the way to the end."""
        log = self.log
        log.advance(log.high_watermark + int((log.end_offset - log.high_watermark) * share))
        self._written()

    def _may_be_cleaned(self) -> None:
        stable = min(self.model.stable(self.log.segments[0].base_offset), self.log.high_watermark)
        self.model.cleaned_below = max(self.model.cleaned_below, stable)

    # ---- writing

    def send(self, batch: bytearray) -> None:
        if self.log.truncation is not None:
            raise StorageError("It is being truncated.")
        if not self.is_following:
            super().send(batch)
            return
        self._take_over(bytes(batch))

    def send_marker(self, marker: Marker, now_ms: int, *, bumps_epoch: bool) -> None:
        if self.log.truncation is not None:
            raise StorageError("It is being truncated.")
        if not self.is_following:
            super().send_marker(marker, now_ms, bumps_epoch=bumps_epoch)
            return
        self._take_over(marker_batch(marker, now_ms))

    def _take_over(self, batch: bytes) -> None:
        """Write a batch as the leader has it, now or with others."""
        end = self.held[-1].end if self.held else self.log.end_offset
        written = placed(batch, end + self.gap, self.model.leader_epoch)
        self.gap = 0
        if self.held is not None:
            self.held.append(written)
            # The next one counts on this one.
            self.model.batches.append(written)
        else:
            self._write([written])

    def hold(self) -> None:
        """Write what comes next with one call."""
        if self.is_following and self.log.truncation is None:
            self.held = []

    def release(self) -> None:
        held, self.held = self.held, None
        if held:
            del self.model.batches[-len(held) :]
            self._write(held)

    def _write(self, batches: list[Written]) -> None:
        model, log = self.model, self.log
        model.ghosts += batches
        try:
            end = log.append_replicated(
                memoryview(b"".join(one.data for one in batches)), self.clock.now_ms()
            )
        except FlintError:
            # Whole batches of it may be there.
            written = [one for one in batches if one.end <= log.end_offset]
        else:
            assert end == log.end_offset == batches[-1].end
            written = batches
        for one in written:
            model.ghosts.remove(one)
            model.batches.append(one)
        self.partition._flusher.after_append()
        self._written()

    # ---- truncation

    def truncate(self, offset: int, *, wait: bool) -> None:
        """Follow a leader whose log ends at `offset`, as far as it is the same."""
        log = self.log
        if log.truncation is None and log.offline is None:
            self.follow()
            missing = self.model.records.keys() - self.read_all().keys()
            try:
                truncation = log.begin_truncation(offset, self.clock.now_ms())
            except FlintError:
                return
            if truncation is not None:
                is_below = truncation.end_offset < self.model.cleaned_below
                self._carry_out(truncation, wait=wait)
                if is_below:
                    self.model.compacted_away |= missing

    def restart(self, offset: int, *, wait: bool) -> None:
        """Follow a leader whose log begins at `offset`."""
        log = self.log
        if log.truncation is None and log.offline is None:
            self.follow()
            try:
                truncation = log.begin_restart(offset, self.clock.now_ms())
            except FlintError:
                return
            self._carry_out(truncation, wait=wait)

    def _carry_out(self, truncation: Truncation, *, wait: bool) -> None:
        model, log = self.model, self.log
        model.truncate(truncation.end_offset, restarts=truncation.restarts)

        async def work() -> None:
            try:
                await self.executor.run(truncation.run)
            except (OSError, StorageError) as error:
                log.finish_truncation(truncation, self.clock.now_ms(), error)
                return
            log.finish_truncation(truncation, self.clock.now_ms())
            if log.offline is None:
                model.whole = None

        self.run(work, wait=wait)
