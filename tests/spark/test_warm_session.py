"""`flintmq spark up`, `down` and `status`, and commands that use the session (P4)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("grpc", reason="toolchain: grpcio, of flintmq[spark]")

import msgspec

from flintmq.cli.common.warm_session import attach_to_warm_session
from flintmq.lake.limits import IN_PROCESS_LIMITS
from flintmq.spark.warm.client import WarmSession, find_warm_session
from flintmq.spark.warm.state import (
    COMMAND_LOCK,
    SERVER_LOCK,
    WarmSessionError,
    await_release,
    hold,
    holder,
    state_directory,
)
from support.broker.broker_process import BrokerProcess
from support.spark.spark_topics import Topics, numbered

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("warm-session")]

RUN_TIMEOUT_S = 240.0
END_TIMEOUT_S = 60.0

# Takes the place of a lake command whose session is killed when its job has begun.
BEREFT = """
import os, signal, time
from flintmq.cli.lake.options import open_session
from flintmq.lake.fan_out import FanOut
from flintmq.lake.tables.table import TableError
from flintmq.spark.warm.client import find_warm_session

def kill(done, total):
    os.kill(find_warm_session(os.environ).state.pid, signal.SIGKILL)

try:
    with FanOut(open_session(None, None), "test") as fan_out:
        fan_out.map([600.0], time.sleep, type(None), on_progress=kill)
except TableError as error:
    print(error)
"""


@dataclass(frozen=True)
class User:
    """One whose cache is the test's."""

    environment: Mapping[str, str]

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "flintmq", *arguments, **variables)

    def python(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            env={**self.environment, **variables},
        )

    @property
    def directory(self) -> str:
        return state_directory(self.environment)

    def session(self) -> WarmSession:
        found = find_warm_session(self.environment)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    made = User({**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))})
    yield made
    done = made.run("spark", "down")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def up(user: User) -> WarmSession:
    """Left for the next test, which finds it."""
    done = user.run("spark", "up")
    assert done.returncode == 0, done.stderr
    return user.session()


@pytest.fixture
def as_user(user: User, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets this process be the user's."""

    def change(**variables: str) -> None:
        for name in os.environ:
            monkeypatch.delenv(name)
        for name, value in {**user.environment, **variables}.items():
            monkeypatch.setenv(name, value)

    return change


def test_without_a_session_status_and_down_say_so(tmp_path: Path) -> None:
    nobody = User({**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    assert "no Spark session is up" in nobody.run("spark", "down").stdout
    done = nobody.run("spark", "status")
    assert (done.returncode, "`flintmq spark up`" in done.stdout) == (1, True)
    assert json.loads(nobody.run("spark", "status", "--json").stdout) == {"up": False}


def test_up_twice_is_one_session_and_status_shows_it(user: User, up: WarmSession) -> None:
    again = user.run("spark", "up")
    assert f"Spark is up already: process {up.state.pid}, port {up.state.port}" in again.stdout
    found = json.loads(user.run("spark", "status", "--json").stdout)
    assert (found["pid"], found["port"], found["differences"]) == (up.state.pid, up.state.port, [])
    assert found["memory_bytes"] > 100 << 20
    assert 0 <= found["idle_seconds"] < found["idle_seconds_max"] == 1800
    told = user.run("spark", "status").stdout
    assert f"process  {up.state.pid}" in told
    assert "of 30 min" in told


def test_the_token_is_for_the_user_alone(user: User, up: WarmSession) -> None:
    directory = Path(user.directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    modes = {one.name: one.stat().st_mode & 0o777 for one in directory.iterdir() if one.is_file()}
    names = ("state.json", "server.lock", "command.lock", "server.log")
    assert modes == dict.fromkeys(names, 0o600)
    if Path("/proc/self").exists():
        lines = [commandline(one) for one in Path("/proc").iterdir() if one.name.isdigit()]
        assert any(b"SparkSubmit" in line for line in lines)
        assert not any(up.state.token.encode() in line for line in lines), "command lines are for everybody"


def commandline(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("token", ["wrong", ""])
def test_a_wrong_token_is_refused_with_what_to_do(up: WarmSession, token: str) -> None:
    wrong = replace(up, state=msgspec.structs.replace(up.state, token=token))
    with pytest.raises(WarmSessionError, match=r"does not let this command in.*`flintmq spark down`"):
        wrong.attach()


def test_a_lake_command_with_enough_work_uses_the_session(
    user: User, up: WarmSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    count = IN_PROCESS_LIMITS.items_max + 1
    topics.create(topic, partitions=count)
    for partition in range(count):
        topics.write(topic, numbered(0, 2), partition=partition)
    arguments = ["lake", "sync", topic, "--to", str(tmp_path / "lake"), "-b", broker.address]
    done = user.run(*arguments)
    assert done.returncode == 0, done.stderr
    assert f"using the Spark session that is up (process {up.state.pid})" in done.stderr
    assert "starting Spark" not in done.stderr
    assert f"{2 * count} rows in {count} files" in done.stdout
    topics.write(topic, numbered(0, 3))
    little = user.run(*arguments)
    assert "3 rows in 1 file" in little.stdout
    assert little.stderr == "", "little work needs no session"
    assert user.session().state.pid == up.state.pid, "a command leaves the session as it was"


def test_another_environment_is_refused_by_name(
    user: User, up: WarmSession, as_user: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    done = user.run("spark", "up", TZ="Asia/Tokyo", AWS_PROFILE="other")
    assert done.returncode == 1
    assert "differs in AWS_PROFILE, TZ. End it with `flintmq spark down`" in done.stderr
    assert "differs in TZ" in user.run("spark", "status", TZ="Asia/Tokyo").stdout
    as_user(TZ="Asia/Tokyo")
    assert attach_to_warm_session() is None, "the command has a Spark of its own"
    assert "is not used, for it differs in TZ" in capsys.readouterr().err


def test_a_session_that_dies_under_its_command_is_told_and_forgotten(user: User, up: WarmSession) -> None:
    jvm = next((one for one in children(up.state.pid)), 0)
    done = user.python("-c", BEREFT)
    assert done.returncode == 0, done.stderr
    assert f"(process {up.state.pid}) has ended during the work. Run the command again" in done.stdout
    if Path("/proc/self").exists():
        assert wait_until(lambda: not Path(f"/proc/{jvm}").exists()), "the JVM ends with its server"
    # The server's state is still there, and nobody takes it for a session.
    assert (Path(user.directory) / "state.json").exists()
    assert user.run("spark", "status").returncode == 1
    assert "no Spark session is up" in user.run("spark", "down").stdout


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + END_TIMEOUT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.long
def test_a_session_ends_by_itself_when_it_is_idle(user: User) -> None:
    done = user.run("spark", "up", "--idle", "10s")
    assert done.returncode == 0, done.stderr
    assert await_release(user.directory, SERVER_LOCK, wait_s=END_TIMEOUT_S)
    assert not (Path(user.directory) / "state.json").exists()
    assert user.run("spark", "status").returncode == 1


def test_a_server_that_cannot_start_says_why(user: User) -> None:
    done = user.run("spark", "up", SPARK_HOME="/nowhere")
    assert done.returncode == 1
    assert "Spark's server ended with code 1" in done.stderr
    assert "/nowhere" in done.stderr
    assert holder(user.directory, SERVER_LOCK) is None


def test_a_process_that_has_got_the_id_of_a_server_is_left_alone(user: User) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as innocent:
        try:
            (Path(user.directory) / SERVER_LOCK).write_text(str(innocent.pid))
            assert "no Spark session is up" in user.run("spark", "down").stdout
            assert innocent.poll() is None
        finally:
            innocent.send_signal(signal.SIGKILL)


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    with hold(str(tmp_path), COMMAND_LOCK):
        assert holder(str(tmp_path), COMMAND_LOCK) == os.getpid()
        with (
            pytest.raises(WarmSessionError, match="another process holds"),
            hold(str(tmp_path), COMMAND_LOCK),
        ):
            pass
    assert holder(str(tmp_path), COMMAND_LOCK) is None
