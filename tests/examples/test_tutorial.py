"""The tutorial of docs/pipelines.md, word for word: its file, its commands, and what it says of them.

Only the broker is the test's: the tutorial's own would need the usual port.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.pipeline import examine
from flintmq.pipeline.plan.drawing import draw
from support.broker.broker_process import BrokerProcess, clean_environment

TEXT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
TUTORIAL = TEXT.partition("\n## Tutorial\n")[2].partition("\n## ")[0]
FILE = "orders.yaml"
TIMEOUT_S = 300


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TUTORIAL, re.DOTALL)


def test_the_file_is_valid_and_the_plan_is_as_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (yaml,) = blocks("yaml")
    (drawn,) = blocks("text")
    Path(FILE).write_text(yaml)
    found = examine(FILE)
    assert found.problems == []
    assert found.pipeline is not None
    assert draw(found.pipeline, width=100, is_ascii=False).strip() == drawn.strip()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("spark")
def test_the_commands_do_what_the_tutorial_says(tmp_path: Path) -> None:
    for name in ("pyspark", "obstore", "deltalake"):
        pytest.importorskip(name, reason=f"toolchain: {name}, of flintmq[spark]")
    (yaml,) = blocks("yaml")
    first, *rest = blocks("sh")
    assert first == "pip install 'flintmq[spark]'\nflintmq serve &\n"
    folder = tmp_path / "folder"
    folder.mkdir()
    with BrokerProcess(tmp_path / "data") as broker:
        (folder / FILE).write_text(f"{yaml}bootstrap_servers: {broker.address}\n")
        outputs = [shell(block, folder, broker.address) for block in rest]
    _, checked, ran, dead, totals, again = outputs
    assert "orders is valid" in checked
    assert ids(ran) == [1, 2, 5]
    assert len(dead.splitlines()) == 2
    assert "positive" in dead
    assert '{"id": 4, "country": "DE", "amo' in dead
    assert sorted(float(one) for one in re.findall(r"'total': ([\d.]+)", totals)) == [11.0, 20.5, 40.0]
    assert "orders: done" in again
    assert ids(again) == [1, 2, 5, 6]


def ids(output: str) -> list[int]:
    return sorted(json.loads(line)["id"] for line in output.splitlines() if line.startswith("{"))


def shell(commands: str, folder: Path, address: str) -> str:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["/bin/sh", "-ec", commands],
        cwd=folder,
        env=clean_environment({"PATH": path, "FLINTMQ_BOOTSTRAP_SERVERS": address}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout
