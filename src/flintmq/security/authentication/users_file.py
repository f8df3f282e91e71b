"""The users file (`flint.users.file`): one user a line, `NAME:HASH`; empty lines and lines with `#` are left out.

A name may contain colons: the hash contains none. The file is read again when it has changed; a file that cannot be
read or has a mistake leaves the users as they were, and an error in the log.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping

from flintmq.errors import ConfigurationError
from flintmq.security.authentication.password_hash import ITERATIONS, PasswordHash, parse_password_hash

logger = logging.getLogger(__name__)

_FILE_BYTES_MAX = 16 << 20


def parse_users(text: str) -> dict[str, PasswordHash]:
    """ValueError names the line."""
    users: dict[str, PasswordHash] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, colon, hashed = line.rpartition(":")
        if not colon or not name:
            raise ValueError(f"line {number}: expected NAME:HASH")
        if name in users:
            raise ValueError(f"line {number}: a user that was given before")
        try:
            users[name] = parse_password_hash(hashed)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return users


class UsersFile:
    """The users of a file. Reading blocks: `refresh` is for threads, or for the start."""

    def __init__(self, path: str) -> None:
        """ConfigurationError if the file cannot be used at the start."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self.users: Mapping[str, PasswordHash] = {}
        self.usual_iterations = ITERATIONS
        """Of most users. Found when the file is read: an unknown user must not take longer than a known one."""
        self._read(self._stamp())

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            stamp = self._stamp()
            if stamp != self._seen:
                self._read(stamp)
        except ConfigurationError as error:
            logger.error("the users stay as they were: %s", error)

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise self._unusable(error.strerror or "unknown error") from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self, stamp: tuple[int, int, int]) -> None:
        # ORDER: remembered first, so that a file with a mistake is reported once and not at every authentication.
        self._seen = stamp
        try:
            with open(self._path, encoding="utf-8") as file:
                text = file.read(_FILE_BYTES_MAX + 1)
            if len(text) > _FILE_BYTES_MAX:
                raise ValueError(f"it is larger than {_FILE_BYTES_MAX} bytes")
            self.users = users = parse_users(text)
            counts = Counter(one.iterations for one in users.values()).most_common(1)
            self.usual_iterations = counts[0][0] if counts else ITERATIONS
        except OSError as error:
            raise self._unusable(error.strerror or "unknown error") from None
        except (ValueError, UnicodeDecodeError) as error:
            reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
            raise self._unusable(reason) from None

    def _unusable(self, reason: str) -> ConfigurationError:
        return ConfigurationError(f"the users file {self._path} (flint.users.file) cannot be used: {reason}")
