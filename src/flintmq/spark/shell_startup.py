"""What a PySpark shell runs once its session is there: sources registered, a word about them, the user's own file.

A script, not a module: Python runs it by `PYTHONSTARTUP` in the shell's own names, where `spark` is the session.
"""

import os

import flintmq.spark

flintmq.spark.register(spark)  # type: ignore[name-defined]  # noqa: F821
print('FlintMQ: spark.read.format("flintmq") and spark.readStream.format("flintmq") are ready.')  # noqa: T201

if _own := os.environ.get("FLINTMQ_SHELL_STARTUP"):
    with open(_own, encoding="utf-8") as _file:
        exec(compile(_file.read(), _own, "exec"))  # nosec B102
