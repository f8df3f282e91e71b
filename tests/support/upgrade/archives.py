"""Archives of stored data in `tests/upgrade/fixtures`: packed by the script that makes them, unpacked by tests.

    unpack("broker-clean", tmp_path)         tmp_path / "data" and whatever else the archive holds
    expected("broker-clean")                 the JSON beside the archive

An archive holds no owner, no host and no time of its files.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[2] / "upgrade" / "fixtures"
VERSION = "0.1.0"
"""The version of FlintMQ that made the archives."""
SIZE_MAX_BYTES = 300 * 1024


def archive(name: str) -> Path:
    return FIXTURES / f"{name}-{VERSION}.tar.xz"


def unpack(name: str, directory: Path) -> Path:
    """Extract an archive and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive(name)) as file:
        file.extractall(directory, filter="data")
    return directory


def pack(name: str, directory: Path, *members: str) -> None:
    """Archive these members of a directory."""
    with tarfile.open(archive(name), "w:xz", preset=9) as file:
        for member in members:
            file.add(directory / member, arcname=member, filter=_anonymous)
    size = archive(name).stat().st_size
    assert size <= SIZE_MAX_BYTES, f"{archive(name)} has {size} bytes"


def expected(name: str) -> Any:
    return json.loads(_expected(name).read_text())


def write_expected(name: str, value: object) -> None:
    _expected(name).write_text(_text(value) + "\n")


def _text(value: object, depth: int = 0) -> str:
    """JSON in which each entry of an object, and each record of a list, has a line of its own."""
    if isinstance(value, dict) and value:
        lines = [f"{json.dumps(key)}: {_text(value[key], depth + 1)}" for key in sorted(value)]
        opening, closing = "{}"
    elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value) and depth < 6:
        lines = [_text(one, 6) for one in value]
        opening, closing = "[]"
    else:
        return json.dumps(value)
    space = "\n" + " " * (depth + 1)
    return opening + space + f",{space}".join(lines) + "\n" + " " * depth + closing


def _expected(name: str) -> Path:
    return FIXTURES / f"{name}-{VERSION}.json"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = 0o755 if member.isdir() else 0o644
    return member
