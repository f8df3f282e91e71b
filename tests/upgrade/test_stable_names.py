"""Names that are stored, sent or typed stay what they are."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.upgrade.paths import ROOT

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")


def test_names_are_those_of_the_list() -> None:
    compared = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_stable_names.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
