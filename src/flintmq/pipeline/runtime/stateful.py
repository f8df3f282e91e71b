"""Whether a data frame keeps state, as Spark's own plan says: also of what Python has made, which no text tells.

Needs Spark and costs a few calls for each node of the plan, and runs nothing. `Graph.keeps_state` answers before
there is a plan, for all but Python. Queries in conditions are not looked at: Spark takes no stream there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATEFUL: Final = frozenset(
    (
        *("Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "Intersect", "Except"),
        *("FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState"),
        *("TransformWithState", "TransformWithStateInPySpark"),
    )
)
"""Names of Spark's operators, where what they read is a stream."""
_JOIN: Final = "Join"


def keeps_state(frame: DataFrame) -> bool:
    plan: Any = frame._jdf.queryExecution().analyzed()
    return any(map(_is_stateful, _nodes(plan)))


def _is_stateful(node: Any) -> bool:
    if not node.isStreaming():
        return False
    name = str(node.nodeName())
    joins = name == _JOIN and all(one.isStreaming() for one in _listed(node.children()))
    return name in _STATEFUL or joins


def _nodes(plan: Any) -> Iterator[Any]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += _listed(node.children())


def _listed(found: Any) -> list[Any]:
    return [found.apply(index) for index in range(found.size())]
