"""The pages of a broker, over HTTP and from its first moment on (B8, F12)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flintmq.app.observability.health import Phase
from flintmq.app.observability.telemetry import Telemetry
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock
from flintmq.errors import ConfigurationError
from flintmq.metrics import Counters, parse
from flintmq.settings import LoadedSettings, load

Scenario = Callable[[Telemetry], Awaitable[None]]
FREE_PORT = load(command_line=[("flint.rest.port", "0")])


def run(scenario: Scenario, tmp_path: Path, loaded: LoadedSettings = FREE_PORT) -> None:
    async def all_of_it() -> None:
        loop = asyncio.get_running_loop()
        executor = LoopExecutor(loop, 1)
        telemetry = Telemetry(
            loaded,
            str(tmp_path),
            counters=Counters(),
            clock=SystemClock(),
            disk=RealDisk(),
            executor=executor,
            loop=loop,
        )
        try:
            await scenario(telemetry)
        finally:
            await telemetry.stop()
            executor.close()

    asyncio.run(all_of_it())


async def get(telemetry: Telemetry, path: str) -> tuple[int, str]:
    assert telemetry.url is not None
    host, _, port = telemetry.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def readiness(telemetry: Telemetry) -> tuple[int, str, list[str]]:
    status, body = await get(telemetry, "/health/ready")
    found = json.loads(body)
    return status, found["status"], [reason["reason"] for reason in found["reasons"]]


def a_log(offline: str | None = None) -> Any:
    return SimpleNamespace(log=SimpleNamespace(name="t-0", offline=offline))


class Logs(list[Any]):
    """Partitions, as far as health looks at them."""

    log_dir = SimpleNamespace(logs={"t-0": None, "t-1": None})


def test_a_broker_says_what_it_is_doing_from_its_first_moment_to_its_last(tmp_path: Path) -> None:
    async def scenario(telemetry: Telemetry) -> None:
        await telemetry.start()
        parts = telemetry.parts
        assert await readiness(telemetry) == (503, "not ready", ["starting"])
        assert (await get(telemetry, "/health/live"))[0] == 200
        parts.phase = Phase.RECOVERING
        assert await readiness(telemetry) == (503, "not ready", ["recovering"])
        assert parse((await get(telemetry, "/metrics"))[1]).total("flintmq_ready") == 0
        parts.phase = Phase.RUNNING
        assert await readiness(telemetry) == (200, "ready", [])
        assert parse((await get(telemetry, "/prometheus"))[1]).total("flintmq_ready") == 1
        parts.phase = Phase.STOPPING
        assert await readiness(telemetry) == (503, "not ready", ["stopping"])

    run(scenario, tmp_path)


def test_logs_offline_and_a_failed_metadata_store_are_reasons(tmp_path: Path) -> None:
    async def scenario(telemetry: Telemetry) -> None:
        await telemetry.start()
        parts = telemetry.parts
        parts.phase, parts.partitions = Phase.RUNNING, cast(Any, Logs([a_log("fsync failed"), a_log()]))
        assert await readiness(telemetry) == (200, "degraded", ["log_offline"])
        parts.metadata_failure = "no more journal"
        assert await readiness(telemetry) == (503, "not ready", ["metadata_failed", "log_offline"])

    run(scenario, tmp_path)


def test_the_overview_and_the_version_are_there_before_anything_else_is(tmp_path: Path) -> None:
    async def scenario(telemetry: Telemetry) -> None:
        await telemetry.start()
        overview = json.loads((await get(telemetry, "/"))[1])
        assert (overview["name"], overview["status"]) == ("FlintMQ", "not ready")
        assert "kafka_protocol" in json.loads((await get(telemetry, "/version"))[1])

    run(scenario, tmp_path)


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async def scenario(telemetry: Telemetry) -> None:
        await telemetry.start()
        assert telemetry.url is None

    run(scenario, tmp_path, load(command_line=[("flint.rest.port", "-1")]))


def test_a_broker_inside_another_program_listens_only_if_it_is_told_to(tmp_path: Path) -> None:
    async def not_told(telemetry: Telemetry) -> None:
        await telemetry.start(optional=True)
        assert telemetry.url is None

    async def told(telemetry: Telemetry) -> None:
        await telemetry.start(optional=True)
        assert telemetry.url is not None

    run(not_told, tmp_path, load())
    run(told, tmp_path)


def test_the_default_port_may_be_taken_and_a_chosen_one_may_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def warns(telemetry: Telemetry) -> None:
            await telemetry.start()
            assert telemetry.url is None
            assert f"127.0.0.1:{port}" in caplog.text

        async def fails(telemetry: Telemetry) -> None:
            with pytest.raises(ConfigurationError, match=str(port)):
                await telemetry.start()

        loaded = load()
        run(warns, tmp_path, replace(loaded, broker=replace(loaded.broker, flint_rest_port=port)))
        run(fails, tmp_path, load(command_line=[("rest_port", str(port))]))
