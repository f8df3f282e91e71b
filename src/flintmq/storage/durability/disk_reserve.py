"""A little room on the disk, reserved for making room.

To delete records on a full disk, the new start of the log must first be written down, and there is no room for it.
So a file of no content is kept in the data directory; when a checkpoint does not fit, it is given up, and made again
once the disk has room. It holds nothing and needs no sync: losing it only means that it is made again.
"""

from __future__ import annotations

import logging

from flintmq.effects import Disk

logger = logging.getLogger(__name__)

RESERVE_FILE = "reserve"
RESERVE_BYTES = 1024 * 1024


class DiskReserve:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{RESERVE_FILE}"
        self._kept = False

    def create(self) -> None:
        """Create the file, if it does not exist and there is room."""
        if self._kept:
            return
        try:
            file = self._disk.open(self._path, create=True)
            try:
                file.allocate(RESERVE_BYTES)
            finally:
                file.close()
            self._kept = True
        except OSError as error:
            logger.debug("%s cannot be made: %s", self._path, error)
            self._remove()

    def release(self) -> bool:
        """Remove the file; True if there is more room now."""
        if not self._kept:
            return False
        self._kept = False
        return self._remove()

    def _remove(self) -> bool:
        try:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
                return True
        except OSError as error:
            logger.warning("%s could not be removed: %s", self._path, error)
        return False
