"""Every test of this folder that asks for `loop_factory` runs on uvloop and on asyncio's own loop."""

from __future__ import annotations

import pytest

from support.broker.loopback import LOOPS, LoopFactory


@pytest.fixture(params=sorted(LOOPS))
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    return LOOPS[request.param]
