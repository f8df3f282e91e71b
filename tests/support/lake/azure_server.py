"""A real server of Azure's blobs in a process of its own: Azurite, in memory, with the container `lake`.

    with AzureServer() as server:
        server.settings          for a store: account, key and endpoint

`.ci/run` installs it; without it `azurite_program` is None, and tests are skipped.
Invariant: its process is gone when the block ends.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from pyarrow.fs import AzureFileSystem

CONTAINER = "lake"
# Known to everybody: Azurite's own.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_LOCK = Path(__file__).parent / "azurite" / "package-lock.json"
_START_TIMEOUT_S = 60.0


def azurite_program() -> list[str] | None:
    """The command that serves blobs; None if it is not installed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flintmq-tests"
    home = cache / f"azurite-{hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:16]}"
    program = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    node = shutil.which("node")
    return None if node is None or not program.exists() else [node, str(program)]


class AzureServer:
    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> dict[str, str]:
        endpoint = f"http://127.0.0.1:{self.port}/{_ACCOUNT}"
        return {"account_name": _ACCOUNT, "account_key": _KEY, "endpoint": endpoint}

    def __enter__(self) -> AzureServer:
        program = azurite_program()
        assert program is not None
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        address = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        self._process = subprocess.Popen(
            [*program, *options, *address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, "Azurite has ended"
            assert time.monotonic() < deadline, "Azurite does not answer"
            time.sleep(0.05)
        self._make_container()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            return True
        except OSError:
            return False

    def _make_container(self) -> None:
        authority = f"127.0.0.1:{self.port}"
        AzureFileSystem(
            account_name=_ACCOUNT,
            account_key=_KEY,
            blob_storage_authority=authority,
            dfs_storage_authority=authority,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        ).create_dir(CONTAINER)
