"""Pipelines from texts, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from flintmq.pipeline import Examined, examine

Examine = Callable[..., Examined]


@pytest.fixture
def examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Examines a text as the file `p.yaml`, in an environment that is given."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, **environment: str) -> Examined:
        (tmp_path / "p.yaml").write_text(dedent(text), encoding="utf-8")
        return examine("p.yaml", environment=environment)

    return run
