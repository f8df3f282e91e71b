"""How many partitions long polls wait for, in all connections. Pure.

A client may have many fetches under way, each of thousands of partitions and for weeks; each partition that is
waited for takes memory. Beyond the bound a fetch is answered at once with what there is, as if its time were up;
one of few partitions, as nearly all are, may wait for longer than others.
"""

from __future__ import annotations

PARTITIONS_MAX = 100_000
FEW = 100
PARTITIONS_OF_FEW_MAX = 200_000


class ParkedFetchLimit:
    def __init__(self) -> None:
        self.partitions = 0

    def may_wait(self, partitions: int) -> bool:
        limit = PARTITIONS_OF_FEW_MAX if partitions <= FEW else PARTITIONS_MAX
        return self.partitions + partitions <= limit
