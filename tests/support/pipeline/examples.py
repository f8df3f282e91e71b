"""An example of the repository, in a copy of its folder: its README's commands, and what they leave behind.

Invariant: what makes the data is run as the README says it, in a shell; the pipeline is the one in the folder. Only
the broker's address and the Spark that runs it are the test's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flintmq.pipeline import load
from flintmq.pipeline.runtime.runner import RunOutcome, run
from support.broker.broker_process import clean_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"
RUN = "flintmq pipeline run pipeline.yaml --once"
_TIMEOUT_S = 60


class Example:
    def __init__(self, name: str, spark: SparkSession, address: str, folder: Path) -> None:
        self.folder = folder / name
        shutil.copytree(EXAMPLES / name, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        self._spark = spark
        self._address = address

    @property
    def blocks(self) -> list[list[str]]:
        """The commands of the README's blocks, in order."""
        text = (self.folder / "README.md").read_text()
        return [one.strip().splitlines() for one in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]

    def follow(self, block: int = 0) -> RunOutcome:
        """A block of two commands: data is made, and the pipeline is run."""
        make, then = self.blocks[block]
        assert then == RUN
        self.shell(make)
        return run(
            self._spark,
            load(str(self.folder / "pipeline.yaml"), environment={"BROKERS": self._address}),
            once=True,
        )

    def shell(self, command: str) -> str:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=self.folder,
            env=clean_environment({"PATH": path, "FLINTMQ_BOOTSTRAP_SERVERS": self._address}),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def records(self, topic: str) -> list[Any]:
        """The values in a topic, as JSON."""
        out = self.shell(f"flintmq consume {topic} --from beginning --until-end")
        return [json.loads(line) for line in out.splitlines()]

    def delta(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, as a reader that is not FlintMQ's sees them."""
        from deltalake import DeltaTable

        rows: list[dict[str, Any]] = DeltaTable(str(self.folder / table)).to_pyarrow_table().to_pylist()
        return rows

    def parquet(self, table: str) -> list[dict[str, Any]]:
        """The rows of a plain table of which nothing was ever removed, as any reader sees them."""
        import pyarrow.parquet as pq

        rows: list[dict[str, Any]] = pq.read_table(str(self.folder / table / "data")).to_pylist()
        return rows

    def module(self, name: str) -> ModuleType:
        """One of its Python files."""
        spec = spec_from_file_location(f"example_{name}", self.folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        made = module_from_spec(spec)
        sys.modules[spec.name] = made
        spec.loader.exec_module(made)
        return made
