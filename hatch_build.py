"""Compiles the core of FlintMQ with mypyc: into wheels, and for `./flint` into a directory outside the checkout.

    python hatch_build.py              say what is missing here to compile it, if anything is
    python hatch_build.py DIRECTORY    compile it

The modules in `COMPILED` are ordinary typed Python. Compiled, they cost about half; without a C compiler or Python's
headers the same files run uncompiled, and `FLINTMQ_COMPILE=0` asks for that.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = (
    "flintmq/arrow/codec/batch_positions.py",
    "flintmq/arrow/codec/record_fields.py",
    "flintmq/broker/authentication.py",
    "flintmq/broker/authorization.py",
    "flintmq/broker/coordinator_calls.py",
    "flintmq/broker/dispatch.py",
    "flintmq/broker/fetch_sessions.py",
    "flintmq/broker/handlers/fetch.py",
    "flintmq/broker/handlers/groups/heartbeat.py",
    "flintmq/broker/handlers/groups/offset_commit.py",
    "flintmq/broker/handlers/groups/offset_fetch.py",
    "flintmq/broker/handlers/produce.py",
    "flintmq/broker/handlers/topics/list_offsets.py",
    "flintmq/broker/handlers/transactions/add_partitions_to_txn.py",
    "flintmq/broker/handlers/transactions/end_txn.py",
    "flintmq/broker/handlers/transactions/init_producer_id.py",
    "flintmq/broker/handlers/transactions/txn_offset_commit.py",
    "flintmq/broker/handlers/transactions/write_txn_markers.py",
    "flintmq/broker/request.py",
    "flintmq/broker/responses.py",
    "flintmq/broker/services.py",
    "flintmq/broker/throttling.py",
    "flintmq/broker/transaction_verification.py",
    "flintmq/coordinator/groups/coordinator.py",
    "flintmq/coordinator/groups/group.py",
    "flintmq/coordinator/groups/machine.py",
    "flintmq/coordinator/groups/membership.py",
    "flintmq/coordinator/groups/offset_commits.py",
    "flintmq/coordinator/groups/offsets.py",
    "flintmq/coordinator/groups/rebalance.py",
    "flintmq/coordinator/groups/records.py",
    "flintmq/coordinator/groups/responses.py",
    "flintmq/coordinator/runtime/coordinator.py",
    "flintmq/coordinator/runtime/loader.py",
    "flintmq/coordinator/runtime/machine.py",
    "flintmq/coordinator/runtime/shard.py",
    "flintmq/coordinator/transactions/coordinator.py",
    "flintmq/coordinator/transactions/decision.py",
    "flintmq/coordinator/transactions/listing.py",
    "flintmq/coordinator/transactions/machine.py",
    "flintmq/coordinator/transactions/marker_sender.py",
    "flintmq/coordinator/transactions/marker_writer.py",
    "flintmq/coordinator/transactions/records.py",
    "flintmq/coordinator/transactions/responses.py",
    "flintmq/coordinator/transactions/transaction.py",
    "flintmq/coordinator/transactions/transitions.py",
    "flintmq/effects/real.py",
    "flintmq/metrics/counters.py",
    "flintmq/partitions/leadership.py",
    "flintmq/partitions/local_partitions.py",
    "flintmq/partitions/partition.py",
    "flintmq/partitions/verification_guards.py",
    "flintmq/partitions/replication/fetched_batches.py",
    "flintmq/partitions/replication/leader.py",
    "flintmq/partitions/replication/replica_states.py",
    "flintmq/partitions/replication/throttle.py",
    "flintmq/protocol/fetch.py",
    "flintmq/protocol/header.py",
    "flintmq/protocol/leader_hints.py",
    "flintmq/protocol/primitives.py",
    "flintmq/protocol/produce.py",
    "flintmq/records/batch.py",
    "flintmq/records/markers.py",
    "flintmq/records/read_committed.py",
    "flintmq/records/record.py",
    "flintmq/records/record_walk.py",
    "flintmq/records/varint.py",
    "flintmq/security/authentication/exchange.py",
    "flintmq/security/authorization/acl_index.py",
    "flintmq/security/authorization/authorizer.py",
    "flintmq/security/quotas/client_quotas.py",
    "flintmq/security/quotas/rate.py",
    "flintmq/server/connection.py",
    "flintmq/server/context.py",
    "flintmq/server/inbound.py",
    "flintmq/server/inbound_budget.py",
    "flintmq/server/outbound.py",
    "flintmq/server/outbound_budget.py",
    "flintmq/server/tls/connection.py",
    "flintmq/server/tls/outbound.py",
    "flintmq/storage/aborted_transactions.py",
    "flintmq/storage/compaction/batch_filter.py",
    "flintmq/storage/compaction/batch_reader.py",
    "flintmq/storage/compaction/cleaned_segment.py",
    "flintmq/storage/compaction/cleaner.py",
    "flintmq/storage/compaction/offset_map.py",
    "flintmq/storage/compaction/transactions.py",
    "flintmq/storage/descriptors.py",
    "flintmq/storage/durability/flush.py",
    "flintmq/storage/durability/flusher.py",
    "flintmq/storage/indexes.py",
    "flintmq/storage/leader_epochs.py",
    "flintmq/storage/log.py",
    "flintmq/storage/log_segments.py",
    "flintmq/storage/producer_snapshots.py",
    "flintmq/storage/producer_state.py",
    "flintmq/storage/reader.py",
    "flintmq/storage/recovery/segment_scan.py",
    "flintmq/storage/recovery/state_replay.py",
    "flintmq/storage/replica_append.py",
    "flintmq/storage/rolling.py",
    "flintmq/storage/segment.py",
    "flintmq/storage/timestamp_lookup.py",
    "flintmq/storage/transaction_markers.py",
    "flintmq/storage/visibility.py",
    "flintmq/testing/disk.py",
)

_COMPILERS = ("cc", "gcc", "clang")
_OPTIMIZATION = "3"
# A function that no other library can see is called directly, not through the table of what the linker may replace.
_CALL_DIRECTLY = "-fvisibility=hidden"
_PROGRESS_S = 2.0
_KEPT_BUILDS = 8
_MODULES_FILE = "modules.txt"


def missing_tool() -> str | None:
    """Return what compiling needs and this machine lacks; None if it has everything."""
    compilers = shlex.split(os.environ.get("CC", ""))[:1] or _COMPILERS
    if not any(map(shutil.which, compilers)):
        return "A C compiler"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "The file Python.h (Python's headers)"
    return None


def compile_core(source: Path, directory: Path) -> None:
    """Compile the modules of `source` and put the libraries into `directory`, in their packages."""
    with tempfile.TemporaryDirectory(prefix="flintmq-compile-") as work:
        here = Path.cwd()
        os.chdir(source)
        try:
            extensions = _translate(work)
            _build(extensions, directory, work)
        finally:
            os.chdir(here)


def _translate(work: str) -> list[Any]:
    """Python to C: one file for each module, all of them one library that each module's own small one loads."""
    from mypyc.build import mypycify

    _say(f"translating {len(COMPILED)} modules to C")
    return mypycify(
        [
            "--config-file=",
            f"--cache-dir={work}/cache",
            "--explicit-package-bases",
            "--ignore-missing-imports",
            # What other packages' types say differs from machine to machine, and is checked elsewhere.
            "--follow-imports=silent",
            *COMPILED,
        ],
        opt_level=_OPTIMIZATION,
        debug_level="0",
        target_dir=f"{work}/c",
        group_name="flintmq",
        multi_file=True,
    )


def _build(extensions: list[Any], directory: Path, work: str) -> None:
    """Compile with one compiler for each core, then link."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    command = build_ext(Distribution({"name": "flintmq", "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(directory), f"{work}/objects"
    command.ensure_finalized()
    progress = _Progress(sum(len(extension.sources) for extension in extensions))

    def build_extensions() -> None:
        compiler = command.compiler

        def compile_one(extension: Any, file: str) -> list[str]:
            objects: list[str] = compiler.compile(
                [file],
                output_dir=command.build_temp,
                include_dirs=extension.include_dirs,
                extra_postargs=[*extension.extra_compile_args, _CALL_DIRECTLY],
                depends=extension.depends,
            )
            progress.step()
            return objects

        def link(extension: Any, parts: list[Future[list[str]]]) -> None:
            library = command.get_ext_fullpath(extension.name)
            os.makedirs(os.path.dirname(library), exist_ok=True)
            objects = [name for part in parts for name in part.result()]
            compiler.link_shared_object(objects, library, build_temp=command.build_temp)

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            # The longest first: a large file that begins last would leave the other cores idle.
            files = sorted(
                ((extension, file) for extension in extensions for file in extension.sources),
                key=lambda one: os.path.getsize(one[1]),
                reverse=True,
            )
            parts: dict[str, list[Future[list[str]]]] = {extension.name: [] for extension in extensions}
            for extension, file in files:
                parts[extension.name].append(pool.submit(compile_one, extension, file))
            linked = [pool.submit(link, extension, parts[extension.name]) for extension in extensions]
            for one in linked:
                one.result()

    command.build_extensions = build_extensions
    command.run()


def _remove_old(target: Path) -> None:
    """Keep the newest few builds beside `target`. A broker that still runs an older one has it in memory."""
    builds = [marker.parent for marker in target.parent.glob(f"*/{_MODULES_FILE}")]
    builds.sort(key=lambda build: build.stat().st_mtime, reverse=True)
    for old in builds[_KEPT_BUILDS:]:
        shutil.rmtree(old, ignore_errors=True)


class _Progress:
    """A line from time to time on standard error."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._told = time.monotonic()

    def step(self) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._told >= _PROGRESS_S:
            self._told = now
            _say(f"compiled {self._done} of {self._count} files")


def _say(line: str) -> None:
    sys.stderr.write(f"flint: {line}\n")


class CompiledModules(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return ["mypy>=2.4,<3", "setuptools>=75", "msgspec>=0.19"] if self._is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install keeps the sources, which would shadow nothing but go stale.
        if version == "editable" or not self._is_wanted():
            return
        self._directory = tempfile.mkdtemp(prefix="flintmq-libraries-")
        libraries = Path(self._directory)
        compile_core(Path(self.root) / "src", libraries)
        for built in libraries.rglob("*.so"):
            build_data["force_include"][str(built)] = str(built.relative_to(libraries))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if directory := getattr(self, "_directory", None):
            shutil.rmtree(directory)

    def _is_wanted(self) -> bool:
        """Whether to compile: wherever it is possible, unless FLINTMQ_COMPILE says 0 (never) or 1 (or fail)."""
        asked = os.environ.get("FLINTMQ_COMPILE", "")
        return self.target_name == "wheel" and asked != "0" and (asked == "1" or missing_tool() is None)


def main(arguments: list[str]) -> int:
    """Compile into the directory that is given, which appears only when it is complete."""
    if (missing := missing_tool()) is not None:
        _say(f"{missing} is not here, so FlintMQ runs uncompiled, at about twice the CPU")
        return 1
    if not arguments:
        return 0
    target = Path(arguments[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as building:
        libraries = Path(building) / "lib"
        compile_core(Path(__file__).parent / "src", libraries)
        names = sorted(str(library.relative_to(libraries)) for library in libraries.rglob("*.so"))
        (libraries / _MODULES_FILE).write_text("".join(f"{name}\n" for name in names))
        try:
            libraries.rename(target)
        except OSError:
            if not target.is_dir():  # somebody else was faster
                raise
    _remove_old(target)
    _say(f"compiled in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
