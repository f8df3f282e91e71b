"""Documents that are generated must be what the code would generate now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("script", ["make_compatibility_doc.py"])
def test_the_document_is_up_to_date(script: str) -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), "--check"], capture_output=True, check=False
    )
    assert checked.returncode == 0, f"run scripts/{script}"
