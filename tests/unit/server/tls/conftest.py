"""Every test of this directory that asks for `loop_factory` runs on uvloop and on asyncio's own loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.broker.loopback import LOOPS, LoopFactory
from support.tls.certificates import CertificateFiles


@pytest.fixture(params=sorted(LOOPS))
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    return LOOPS[request.param]


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "certificates")
