"""Records that were to be read and are not there any more: an error, or a warning in the log that names them.

Invariant: whatever is skipped is named, topic, partition and offsets, before reading goes on behind it.
"""

from __future__ import annotations

import logging

from flintmq.errors import FlintError

logger = logging.getLogger(__name__)

_WHAT_TO_DO = (
    "To go on with what is left set the option failOnDataLoss to false; "
    "a stream can also be begun anew with another checkpoint"
)


class DataLoss(FlintError):
    """Records are gone, and failOnDataLoss is true."""


def report_loss(what: str, *, fail: bool) -> None:
    """Raise DataLoss, or warn and return."""
    if fail:
        raise DataLoss(f"{what}. {_WHAT_TO_DO}.")
    logger.warning("%s; failOnDataLoss is false, so reading goes on without them", what)


def span(topic: str, partition: int, start: int, end: int) -> str:
    """A range of offsets as messages name it."""
    return f"{topic}-{partition}, offsets {start} to {end - 1}"
