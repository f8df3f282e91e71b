"""The leader epochs of one log: where each began (KIP-101, KIP-279). Pure, with Kafka's checkpoint format."""

from __future__ import annotations

from bisect import bisect_right

from flintmq.errors import CorruptionError


class LeaderEpochs:
    """Epochs and their start offsets, both ascending."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else -1

    @property
    def first_offset(self) -> int:
        """Where the first known epoch begins."""
        return self._starts[0] if self._starts else 0

    def assign(self, epoch: int, start_offset: int) -> None:
        """A batch of `epoch` is at `start_offset`. Entries that it contradicts are dropped."""
        if self._epochs and self._epochs[-1] == epoch:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def epoch_of(self, offset: int) -> int:
        """The epoch in which `offset` was, or would be, written; -1 if unknown."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else -1

    def end_offset_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch ≤ `epoch` and the offset after its last record; (-1, -1) if undefined."""
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return -1, -1
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        at = bisect_right(self._epochs, epoch)
        if at == 0:
            # Older than all that is known: nothing of it can be in the log beyond where the log begins.
            return epoch, self._starts[0]
        return self._epochs[at - 1], self._starts[at]

    def truncate_from_end(self, end_offset: int) -> None:
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended before `start_offset`; the one that holds it now begins there."""
        at = bisect_right(self._starts, start_offset) - 1
        if at < 0:
            return
        del self._epochs[:at], self._starts[:at]
        self._starts[0] = max(self._starts[0], start_offset)

    def encode(self) -> bytes:
        lines = ["0", str(len(self._epochs))]
        lines += [f"{epoch} {start}" for epoch, start in zip(self._epochs, self._starts, strict=True)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        epochs = cls()
        try:
            version, count, *lines, rest = data.decode().split("\n")
            rows = [line.split(" ") for line in lines]
            # A last line that does not end may have lost digits.
            if version != "0" or len(rows) != int(count) or rest:
                raise ValueError("wrong version or count")
            for epoch, start in rows:
                epochs.assign(int(epoch), int(start))
        except ValueError as error:
            raise CorruptionError(f"The leader epoch checkpoint makes no sense: {error}.") from None
        return epochs
