"""A cleaned segment takes the place of those it was made from, whatever happens meanwhile.

`swap` in the log's directory names the segments that one replaces. It is on stable storage before the first file is
renamed and goes when the last one is gone, so a process that finds it finishes what it says; without it, files that
end in `.cleaned` were left by a pass that did not get so far, and mean nothing.

    swap written · renamed, in one step of the loop · the other segments' files removed · swap removed

Invariant: while `swap` is there, so is every cleaned file that it speaks of, under its old name or its new one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from flintmq.effects import Disk, read_file, write_atomically
from flintmq.errors import CorruptionError
from flintmq.storage.segment import CUT, INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX, file_name

logger = logging.getLogger(__name__)

SWAP_FILE = "swap"
CLEANED = ".cleaned"

# ORDER: the log file comes last, so that indexes never point into another file than their own once it is there.
_SUFFIXES = (INDEX, TIME_INDEX, TXN_INDEX, LOG)


@dataclass(frozen=True, slots=True)
class Swap:
    bases: tuple[int, ...]
    """The segments that go; the cleaned one begins where the first of them did."""
    has_transaction_index: bool


def write_swap(disk: Disk, directory: str, swap: Swap) -> None:
    """From here on the cleaned segment is the log's, now or at the next start."""
    write_atomically(disk, f"{directory}/{SWAP_FILE}", msgspec.json.encode(swap))


def retract_swap(disk: Disk, directory: str) -> None:
    """Take back what was not put in place: the log stays as it is.

    ORDER: the note goes BEFORE the cleaned files. Whoever finds it without them would still remove the segments
    that it names.
    """
    _remove(disk, f"{directory}/{SWAP_FILE}")
    disk.sync_dir(directory)
    discard_cleaned(disk, directory)


def discard_cleaned(disk: Disk, directory: str) -> None:
    """Remove what a pass left that did not get so far as a note."""
    if disk.exists(f"{directory}/{SWAP_FILE}"):
        return
    for name in disk.list(directory):
        if name.endswith(CLEANED) or name == f"{SWAP_FILE}.tmp":
            _remove(disk, f"{directory}/{name}")


def rename_cleaned(disk: Disk, directory: str, swap: Swap) -> None:
    """Put the cleaned files in place. May be repeated."""
    base = swap.bases[0]
    if not swap.has_transaction_index:
        _remove(disk, f"{directory}/{file_name(base, TXN_INDEX)}")
    # ORDER: BEFORE the log file, to which the size does not belong at which another was cut.
    _remove(disk, f"{directory}/{file_name(base, CUT)}")
    for suffix in _SUFFIXES:
        cleaned = f"{directory}/{file_name(base, suffix)}{CLEANED}"
        if disk.exists(cleaned):
            disk.rename(cleaned, f"{directory}/{file_name(base, suffix)}")


def finish_swap(disk: Disk, directory: str, swap: Swap) -> None:
    """Remove what was replaced, then the note. May be repeated.

    ORDER: the renaming is durable BEFORE anything is removed, the removals BEFORE the note about them goes, and
    that BEFORE another pass writes files of the same names, which the note would put in place half written.
    """
    disk.sync_dir(directory)
    for base in swap.bases[1:]:
        for suffix in SEGMENT_SUFFIXES:
            _remove(disk, f"{directory}/{file_name(base, suffix)}")
    disk.sync_dir(directory)
    _remove(disk, f"{directory}/{SWAP_FILE}")
    disk.sync_dir(directory)


def settle_swap(disk: Disk, directory: str) -> None:
    """Finish a swap whose cleaned segment is in place already, retract one whose segment is not."""
    if not disk.exists(f"{directory}/{SWAP_FILE}"):
        return
    swap = _read_swap(disk, directory)
    if disk.exists(f"{directory}/{file_name(swap.bases[0], LOG)}{CLEANED}"):
        retract_swap(disk, directory)
    else:
        finish_swap(disk, directory, swap)


def _read_swap(disk: Disk, directory: str) -> Swap:
    try:
        return msgspec.json.decode(read_file(disk, f"{directory}/{SWAP_FILE}"), type=Swap)
    except msgspec.MsgspecError as error:
        # It was replaced atomically: only the disk can have done that.
        raise CorruptionError(f"{directory}/{SWAP_FILE} makes no sense: {error}") from error


def resume_swap(disk: Disk, directory: str, names: Sequence[str]) -> bool:
    """Finish what a process that died had begun, and remove what it had not; True if there was any of it."""
    found = False
    if SWAP_FILE in names:
        found = True
        swap = _read_swap(disk, directory)
        rename_cleaned(disk, directory, swap)
        finish_swap(disk, directory, swap)
        logger.info("%s: the swap of a compacted segment at offset %d is finished", directory, swap.bases[0])
    for name in names:
        if name.endswith(CLEANED):
            found = True
            _remove(disk, f"{directory}/{name}")
    return found


def _remove(disk: Disk, path: str) -> None:
    if disk.exists(path):
        disk.remove(path)
