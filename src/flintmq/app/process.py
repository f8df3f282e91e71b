"""What a broker takes of its machine: the lock of its data directory, and descriptors."""

from __future__ import annotations

import fcntl
import os
import resource

from flintmq.errors import ConfigurationError


def lock_directory(path: str) -> int:
    """Lock the data directory while the returned descriptor is open: two brokers on one would ruin it."""
    os.makedirs(path, exist_ok=True)
    fd = os.open(f"{path}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise ConfigurationError(
            f"{path} is in use by another broker. Stop it, or choose another folder with --data-dir."
        ) from None
    return fd


def raise_descriptor_limit() -> int:
    """Allow this process as many descriptors as the system does; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass
    return soft
