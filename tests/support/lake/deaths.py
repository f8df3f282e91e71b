"""Functions that end as if their process were killed, in this process: nothing in the product catches it.

dying(("flintmq.lake.drop:drop", False, 1), monkeypatch)        before the first call; True: after it
"""

from __future__ import annotations

import pkgutil
from typing import Any

import pytest

Step = tuple[str, bool, int]
"""Which function, whether after it, and at which call."""


class Killed(BaseException):
    """Nothing in the product catches it, as nothing catches a kill."""


def dying(where: Step, patched: pytest.MonkeyPatch) -> None:
    path, is_after, count = where
    function = pkgutil.resolve_name(path)
    left = [count]

    def die(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if not left[0] and not is_after:
            raise Killed
        result = function(*args, **options)
        if not left[0]:
            raise Killed
        return result

    patched.setattr(path.replace(":", "."), die)
