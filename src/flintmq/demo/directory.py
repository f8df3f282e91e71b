"""The directory of a demo: the pipeline's file, the customers, the broker's data, checkpoints and the lake.

    with demo_directory(keep=None) as directory: …

Invariant: what was made here is removed at the end, unless the directory was given by the user.
"""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flintmq.demo.shop import Customer, customers
from flintmq.errors import ConfigurationError

_SOURCE = os.path.join(os.path.dirname(__file__), "demo.yaml")


@dataclass(frozen=True, slots=True)
class DemoDirectory:
    path: str

    @property
    def pipeline(self) -> str:
        return os.path.join(self.path, "demo.yaml")

    @property
    def broker(self) -> str:
        return os.path.join(self.path, "broker")

    @property
    def lake(self) -> str:
        return os.path.join(self.path, "lake")

    @property
    def spark(self) -> str:
        """What Spark keeps while it runs."""
        return os.path.join(self.path, "spark")

    @property
    def log(self) -> str:
        return os.path.join(self.path, "spark.log")


@contextmanager
def demo_directory(keep: str | None) -> Iterator[DemoDirectory]:
    """Filled with what a demo begins with. One that is to be kept must be new or empty."""
    if keep is None:
        path = tempfile.mkdtemp(prefix="flintmq-demo-")
    else:
        path = os.path.abspath(keep)
        if os.path.isdir(path) and os.listdir(path):
            raise ConfigurationError(f"--keep {keep}: the folder is not empty; give a new one")
        os.makedirs(path, exist_ok=True)
    directory = DemoDirectory(path)
    try:
        shutil.copyfile(_SOURCE, directory.pipeline)
        with open(os.path.join(path, "customers.csv"), "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(Customer._fields)
            writer.writerows(customers())
        yield directory
    finally:
        if keep is None:
            shutil.rmtree(path, ignore_errors=True)
        else:
            # Of no use without the Spark that wrote it.
            shutil.rmtree(directory.spark, ignore_errors=True)
