"""How a command uses the session that `flintmq spark up` keeps: lake commands, and whatever else works for a moment.

warm = attach_to_warm_session()          None: there is none, or none for this command; then it has been said why
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from flintmq.cli.common.output import note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.warm.client import WarmSession


class AttachedSession(NamedTuple):
    spark: SparkSession
    warm: WarmSession

    def why_gone(self) -> str | None:
        """Return what to do if the session has ended under the command; None while it is up."""
        if self.warm.is_up:
            return None
        return (
            f"the Spark session that was up (process {self.warm.state.pid}) has ended during the work. Run the "
            "command again: it continues after what is committed, and starts a Spark of its own unless "
            "`flintmq spark up` is run first"
        )


def attach_to_warm_session() -> AttachedSession | None:
    """Attach, and say so; WarmSessionError if the session does not let this command in."""
    from flintmq.spark.warm.client import find_warm_session

    warm = find_warm_session(os.environ)
    if warm is None:
        return None
    if warm.differences:
        note(
            f"the Spark session that is up is not used, for it differs in {', '.join(warm.differences)}; "
            "`flintmq spark down` and `flintmq spark up` start it as this command needs it"
        )
        return None
    if not warm.answers:
        note(f"the Spark session that is up (process {warm.state.pid}) does not answer, and is not used")
        return None
    note(f"using the Spark session that is up (process {warm.state.pid}); --master 'local[*]' does without")
    return AttachedSession(warm.attach(), warm)
