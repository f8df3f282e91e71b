"""Compiles the hot modules of compaction and decoding into the wheel, with FLINTMQ_COMPILE=1 and a compiler.

Without it the wheel is pure Python and building it needs no compiler: the same modules run uncompiled.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = (
    "flintmq/arrow/codec/record_ends.py",
    "flintmq/records/record_walk.py",
    "flintmq/storage/compaction/offset_map.py",
    "flintmq/storage/compaction/batch_filter.py",
)


class CompiledModules(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return ["mypy>=2.4,<3", "setuptools>=75"] if self._is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install keeps the sources, which would shadow nothing but go stale.
        if version == "editable" or not self._is_wanted():
            return
        from mypyc.build import mypycify
        from setuptools import Distribution
        from setuptools.command.build_ext import build_ext

        self._folder = tempfile.mkdtemp(prefix="flintmq-compile-")
        here = os.getcwd()
        os.chdir(Path(self.root) / "src")
        try:
            # Deterministic names: one group, with its shared part beside the package.
            extensions = mypycify(
                [
                    "--config-file=",
                    f"--cache-dir={self._folder}/cache",
                    "--explicit-package-bases",
                    "--ignore-missing-imports",
                    *COMPILED,
                ],
                opt_level="3",
                debug_level="0",
                target_dir=f"{self._folder}/c",
                group_name="flintmq",
            )
            command = build_ext(Distribution({"name": "flintmq", "ext_modules": extensions}))
            command.build_lib, command.build_temp = f"{self._folder}/lib", f"{self._folder}/temp"
            command.ensure_finalized()
            command.run()
        finally:
            os.chdir(here)
        for built in Path(command.build_lib).rglob("*.so"):
            build_data["force_include"][str(built)] = str(built.relative_to(command.build_lib))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if folder := getattr(self, "_folder", None):
            shutil.rmtree(folder)

    def _is_wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("FLINTMQ_COMPILE") == "1"
