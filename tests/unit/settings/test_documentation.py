"""`docs/configuration.md` is made from the declared lists, and is up to date."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_configuration_document_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "make_configuration_doc.py"))
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == script["render"](), "run: .venv/bin/python scripts/make_configuration_doc.py"
