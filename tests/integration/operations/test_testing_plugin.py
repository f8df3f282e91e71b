"""The pytest plugin as its users meet it: installed, in runs of their own, alone and with several workers (N3)."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from support.broker.broker_process import clean_environment

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "testing"
TIMEOUT_S = 110.0

USERS_TESTS = """
    import pytest

    ports = set()

    @pytest.fixture(scope="session")
    def flintmq_settings():
        return {"num.partitions": 5}

    @pytest.mark.parametrize("turn", range(2))
    def test_every_test_has_a_broker_of_its_own(flintmq_broker, turn):
        assert flintmq_broker.topics() == {}
        flintmq_broker.produce("a", "x")
        assert flintmq_broker.topics() == {"a": 5}

    @pytest.mark.parametrize("turn", range(2))
    def test_the_session_has_one_for_all(flintmq_session_broker, turn):
        ports.add(flintmq_session_broker.port)
        assert len(ports) == 1
        assert flintmq_session_broker.produce("a", "x", partition=0)[0].offset == turn

    def test_that_fails(flintmq_broker):
        assert not flintmq_broker.bootstrap_servers
"""


def run_pytest(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what is tested is what an installation makes of it."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *args],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def test_the_fixtures_come_with_the_installation() -> None:
    (plugin,) = entry_points(group="pytest11", name="flintmq")
    assert plugin.value == "flintmq.testing.plugin"


def test_a_users_tests_run_and_end(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TESTS.replace("\n    ", "\n"))
    run = run_pytest(tmp_path)
    assert re.search(r"1 failed, 4 passed", run.stdout), run.stdout + run.stderr
    assert "test_that_fails" in run.stdout
    assert not run.stderr


def test_the_examples_pass_with_two_workers() -> None:
    run = run_pytest(ROOT, "-n", "2", str(EXAMPLES))
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"\b12 passed", run.stdout), run.stdout


def test_a_run_that_uses_no_broker_loads_none() -> None:
    check = "import sys, flintmq.testing.plugin; print([n for n in sys.modules if n.startswith('flintmq')])"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert run.stdout.strip() == "['flintmq', 'flintmq.testing', 'flintmq.testing.plugin']"


def test_what_the_documentation_shows_is_tried() -> None:
    tried = [path.read_text() for path in sorted(EXAMPLES.glob("*.py"))]
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    assert len(shown) > 5
    for block in shown:
        assert any(block in source for source in tried), block
