"""`./flint` sets up a checkout: once, however many are started at the same time (F1)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Stands for uv: it notes each installation, and whether another one was under way.
UV = """#!/bin/sh
if [ "$1" = venv ]; then
    for venv in "$@"; do :; done
    mkdir -p "$venv/bin"
    printf '#!/bin/sh\\n' >"$venv/bin/python"
    printf '#!/bin/sh\\necho "flintmq $*"\\n' >"$venv/bin/flintmq"
    chmod +x "$venv/bin/python" "$venv/bin/flintmq"
    exit
fi
mkdir "$NOTES/busy" || echo overlap >>"$NOTES/log"
echo "$*" >>"$NOTES/log"
sleep 0.2
rmdir "$NOTES/busy"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    made = tmp_path / "checkout"
    shutil.copytree(ROOT / "locks", made / "locks")
    for name in ("flint", "pyproject.toml"):
        shutil.copy(ROOT / name, made / name)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "uv").write_text(UV)
    (programs / "uv").chmod(0o755)
    return made


def start(checkout: Path, *arguments: str) -> subprocess.Popen[str]:
    notes = checkout.parent
    environment = {
        **os.environ,
        "PATH": f"{notes / 'programs'}{os.pathsep}{os.environ['PATH']}",
        "NOTES": str(notes),
        "FLINTMQ_COMPILE": "0",
    }
    return subprocess.Popen(
        [str(checkout / "flint"), *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )


def installed(checkout: Path) -> list[str]:
    """The locks, in the order in which they were installed."""
    lines = (checkout.parent / "log").read_text().splitlines()
    assert "overlap" not in lines
    return [line.rpartition("/")[2] for line in lines if "--require-hashes" in line]


def test_two_that_are_started_together_install_once(checkout: Path) -> None:
    both = [start(checkout, "version") for _ in range(2)]
    assert [one.communicate()[0] for one in both] == ["flintmq version\n"] * 2
    assert [one.returncode for one in both] == [0, 0]
    assert installed(checkout) == ["core.txt"]
    assert not (checkout / ".venv.lock").exists()


def test_what_a_wider_lock_has_brought_is_not_installed_again(checkout: Path) -> None:
    for arguments in (["lake", "--help"], ["version"], ["lake", "--help"]):
        assert start(checkout, *arguments).wait() == 0
    assert installed(checkout) == ["spark.txt"]


def test_a_lock_that_has_changed_is_installed_again(checkout: Path) -> None:
    assert start(checkout, "version").wait() == 0
    with (checkout / "locks" / "core.txt").open("a") as lock:
        lock.write("# changed\n")
    assert start(checkout, "version").wait() == 0
    assert installed(checkout) == ["core.txt", "core.txt"]


def test_one_that_was_killed_keeps_nobody_out(checkout: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (checkout / ".venv.lock").mkdir()
    (checkout / ".venv.lock" / "pid").write_text(f"{gone.pid}\n")
    assert start(checkout, "version").wait() == 0
    assert installed(checkout) == ["core.txt"]
