"""`examples/security/static_token.py`: a mechanism from an entry point, on a real broker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flintmq.errors import ErrorCode
from support.broker.broker_process import BrokerFailed, BrokerProcess
from support.broker.secured import SaslWire

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "security"
JAAS = 'listener.name.sasl_plaintext.x-token.sasl.jaas.config=static_token required robot="t0ken";'
SETTINGS = ["--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", "sasl.enabled.mechanisms=X-TOKEN"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What `pip install` of the plug-in would leave behind."""
    installed = tmp_path / "site" / "static_token-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: static-token\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[flintmq.authenticators]\nX-TOKEN = static_token:StaticTokenMechanism\n"
        "X-BROKEN = no_such_module:Mechanism\n"
    )
    paths = [str(EXAMPLES), str(installed.parent), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def test_clients_authenticate_with_a_plug_in(tmp_path: Path, environment: dict[str, str]) -> None:
    with BrokerProcess(tmp_path / "data", [*SETTINGS, "--set", JAAS], env=environment) as broker:
        with SaslWire(broker.address) as wire:
            assert wire.handshake("X-TOKEN").error_code == 0
            assert wire.token(b"t0ken").error_code == 0
            assert wire.metadata().brokers
        with SaslWire(broker.address) as wire:
            wire.handshake("X-TOKEN")
            assert wire.token(b"another").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_plug_in_says_what_it_needs(tmp_path: Path, environment: dict[str, str]) -> None:
    broker = BrokerProcess(tmp_path / "data", SETTINGS, env=environment)
    with pytest.raises(BrokerFailed, match="names no tokens"):
        broker.start()


def test_a_plug_in_that_cannot_be_loaded_is_named(tmp_path: Path, environment: dict[str, str]) -> None:
    args = [*SETTINGS[:3], "sasl.enabled.mechanisms=X-BROKEN"]
    broker = BrokerProcess(tmp_path / "data", args, env=environment)
    with pytest.raises(BrokerFailed, match="no_such_module"):
        broker.start()
