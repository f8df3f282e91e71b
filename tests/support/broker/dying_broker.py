"""`flintmq`, stopped at a point: it dies as by `kill -9` before one of its writes, or waits in an fsync for ever.

    python -m support.broker.dying_broker serve …

Nothing happens until the file named by `FLINT_TEST_ORDERS` is there. Its text is `die N`: before the Nth batch that
is written to a log from then on; or `hold TEXT`: in every fsync of a file whose path has this text in it.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from flintmq.cli.main import main
from flintmq.effects.real import RealFile
from flintmq.storage.log import Log
from support.broker.broker_process import BrokerProcess

_VARIABLE = "FLINT_TEST_ORDERS"
_TESTS = Path(__file__).resolve().parents[2]


class DyingBroker(BrokerProcess):
    """The test's side of it."""

    def __init__(self, data_dir: Path, *settings: str) -> None:
        self._orders = data_dir.with_name(data_dir.name + ".orders")
        os.mkfifo(_held(self._orders))
        path = [str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        super().__init__(
            data_dir,
            [word for one in settings for word in ("--set", one)],
            env={"PYTHONPATH": os.pathsep.join(path), _VARIABLE: str(self._orders)},
            program="support.broker.dying_broker",
        )

    def order(self, text: str) -> None:
        aside = self._orders.with_suffix(".new")
        aside.write_text(text)
        aside.rename(self._orders)

    def wait_until_held(self) -> None:
        """Until it waits in an fsync. It can be waited for once."""
        _held(self._orders).read_bytes()

    def forget_orders(self) -> None:
        self._orders.unlink(missing_ok=True)


def _held(orders: Path) -> Path:
    """A pipe that ends when the broker waits."""
    return orders.with_suffix(".held")


class Orders:
    """The broker's side."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._counted: list[str] = []
        self._writes = 0

    def before_write(self) -> None:
        orders = self._read()
        if orders != self._counted:
            self._counted, self._writes = orders, 0
        match orders:
            case ["die", count]:
                self._writes += 1
                if self._writes == int(count):
                    os.kill(os.getpid(), signal.SIGKILL)

    def before_sync(self, path: str) -> None:
        match self._read():
            case ["hold", text] if text in path:
                # In a thread of its own: the loop goes on.
                _held(Path(self._path)).write_bytes(b"")
                threading.Event().wait()

    def _read(self) -> list[str]:
        try:
            with open(self._path) as file:
                return file.read().split()
        except FileNotFoundError:
            return []


def _follow(orders: Orders) -> None:
    append, sync = Log.append, RealFile.sync

    def append_or_die(self: Log, *args: Any, **options: Any) -> Any:
        orders.before_write()
        return append(self, *args, **options)

    def sync_or_wait(self: RealFile) -> None:
        orders.before_sync(self.path)
        sync(self)

    Log.append = append_or_die  # type: ignore[method-assign]
    RealFile.sync = sync_or_wait  # type: ignore[method-assign]


if __name__ == "__main__":
    _follow(Orders(os.environ[_VARIABLE]))
    main(prog_name="flintmq")
