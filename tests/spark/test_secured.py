"""Source, sink, lake and pipelines over SASL_SSL; no secret is in anything that Spark or FlintMQ shows or keeps.

One process with a session of its own runs all jobs, with passwords that are given inline and with references, and
leaves behind what Spark shows: plans, logs, pages of the UI, the event log, checkpoints, tables.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.broker.broker_process import clean_environment
from support.broker.secured import sasl_ssl_broker, sasl_ssl_settings

pytestmark = [pytest.mark.timeout(500), pytest.mark.xdist_group("spark")]

TIMEOUT_S = 400
ROWS = 100
INLINE = "inline-7f3a91c0de"
REFERRED = "referred-52b8e4aa17"
WRONG = "wrong-0d94c1f7b6"
USERS = {"alice": INLINE, "bob": REFERRED}

PIPELINE = """
name: secured-{name}
bootstrap_servers: {address}
security:
{security}
sources:
  records:
    topic: t-{name}
    decode: {{format: json, schema: "id long"}}
sinks:
  out:
    from: records
    topic: piped-{name}
  table:
    from: records
    table: {table}
dead_letters:
  topic: dead-{name}
"""


@dataclass(frozen=True)
class Finished:
    directory: Path
    results: dict[str, Any]
    output: bytes

    def all_traces(self) -> Iterator[tuple[str, bytes]]:
        """Yield everything that was shown or kept, with its name."""
        yield "standard output and logs", self.output
        for path in sorted(self.directory.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(self.directory)), path.read_bytes()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    for name in ("pyspark", "pyarrow", "obstore"):
        pytest.importorskip(name, reason=f"toolchain: {name}, of flintmq[spark]")
    secured, directory = tmp_path_factory.mktemp("secured"), tmp_path_factory.mktemp("jobs")
    files = tmp_path_factory.mktemp("pipelines")
    with sasl_ssl_broker(secured, users=USERS) as broker:
        address = f"localhost:{broker.port}"
        security = {
            "inline": sasl_ssl_settings(secured, "alice", INLINE),
            "referred": sasl_ssl_settings(secured, "bob", "${env:PASSWORD_OF_BOB}"),
        }
        pipelines = {}
        for name, given in security.items():
            pipelines[name] = str(files / f"{name}.yaml")
            text = PIPELINE.format(
                name=name,
                address=address,
                security="\n".join(f"  {one}: {json.dumps(value)}" for one, value in given.items()),
                table=directory / f"table-{name}",
            )
            # The checkpoint is in the directory that is searched, the file with the inline password is not.
            Path(pipelines[name]).write_text(f"{text}checkpoint: {directory}/pipeline-{name}\n")
        wrong = {**security["inline"], "sasl.password": WRONG}
        settings = {
            "address": address,
            "security": security,
            "options": {
                "inline": _options(address, _as_java(security["inline"])),
                "referred": _options(address, security["referred"]),
            },
            "wrong": _options(address, wrong),
            "pipelines": pipelines,
        }
        done = subprocess.run(
            [sys.executable, "-m", "support.spark.secured_program", str(directory)],
            input=json.dumps(settings).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=clean_environment(
                {"PASSWORD_OF_BOB": REFERRED, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
            ),
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 0, done.stdout.decode()[-4000:]
    return Finished(directory, json.loads((directory / "results").read_text()), done.stdout)


def _options(address: str, security: dict[str, str]) -> dict[str, str]:
    named = {f"kafka.{name}": value for name, value in security.items()}
    return {"kafka.bootstrap.servers": address, **named}


def _as_java(security: dict[str, str]) -> dict[str, str]:
    """Return the same settings with the login as Java clients have it: its name says nothing of a secret."""
    left = {name: value for name, value in security.items() if name not in ("sasl.username", "sasl.password")}
    login = f'username="{security["sasl.username"]}" password="{security["sasl.password"]}"'
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {**left, "sasl.jaas.config": f"{module} required {login};"}


@pytest.mark.parametrize("name", ["inline", "referred"])
def test_every_job_connects(finished: Finished, name: str) -> None:
    assert finished.results[f"read {name}"] == ROWS
    assert finished.results[f"copied {name}"] == ROWS
    assert finished.results[f"lake {name}"] == ROWS
    # Numbers are JSON, but no objects: all are dead letters.
    assert finished.results[f"dead letters {name}"] == ROWS


def test_a_wrong_password_is_named_as_such(finished: Finished) -> None:
    assert "rejected the authentication" in finished.results["wrong"]


@pytest.mark.parametrize("secret", [INLINE, REFERRED, WRONG])
def test_no_secret_is_shown_or_kept(finished: Finished, secret: str) -> None:
    forms = [secret.encode(), base64.b64encode(secret.encode())[:-2]]
    found = [name for name, data in finished.all_traces() if any(form in data for form in forms)]
    assert not found


def test_what_is_searched_is_there(finished: Finished) -> None:
    traces = dict(finished.all_traces())
    assert b"RelationV2" in finished.output
    assert b" INFO " in finished.output
    # Options are shown, without their secrets.
    assert b"kafka.sasl.jaas.config=*********(redacted)" in traces["pages"]
    assert b"kafka.sasl.password=*********(redacted)" in traces["pages"]
    assert any(name.startswith("events/") for name in traces)
    assert any(name.startswith("checkpoint/inline/offsets") for name in traces)
    assert any(name.startswith("lake/") for name in traces)
    assert any(name.startswith("pipeline-inline/") for name in traces)
    assert b"spark" in traces["processes"]
