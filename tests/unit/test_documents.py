"""Documents that are generated must be what the code would generate now (stable names: tests/upgrade)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")


@pytest.mark.parametrize(
    "script",
    [
        "make_compatibility_doc.py",
        "make_configuration_doc.py",
        "make_metrics_doc.py",
        "make_pipeline_reference.py",
        "make_security_doc.py",
    ],
)
def test_what_a_script_generates_is_up_to_date(script: str) -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, f"run scripts/{script}\n{checked.stdout}{checked.stderr}"
