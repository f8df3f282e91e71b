"""The systemd unit (B11): starts what the docs install, stops gently, and holds no privileges."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from unit.deploy.deployment_files import advertised, listening, parse_command, parse_unit, read, settings_from

UNIT = parse_unit(read("systemd/flintmq.service"))
SERVICE = UNIT["Service"]

SETTINGS_FILE = "systemd/flintmq.yaml"


def setting(name: str) -> str:
    (value,) = SERVICE[name]
    return value


def test_unit_starts_the_broker_with_the_settings_file() -> None:
    program, *arguments = setting("ExecStart").split()
    assert program == "/opt/flintmq/bin/flintmq"
    assert arguments[0] == "serve"
    assert parse_command(arguments)["config_file"] == "/etc/flintmq/flintmq.yaml"


def test_data_folder_is_the_state_directory() -> None:
    (folder,) = settings_from({}, SETTINGS_FILE).broker.log_dirs
    # With ProtectSystem=strict nothing else can be written.
    assert folder == f"/var/lib/{setting('StateDirectory')}" == setting("WorkingDirectory")
    assert setting("ProtectSystem") == "strict"


def test_settings_file_has_a_listener_for_this_machine_and_one_for_others() -> None:
    loaded = settings_from({}, SETTINGS_FILE)
    ports = listening(loaded)
    hosts = {item.name: item.host for item in loaded.broker.listeners}
    assert hosts == {"INTERNAL": "127.0.0.1", "EXTERNAL": ""}
    assert advertised(loaded) == {
        "INTERNAL": f"localhost:{ports['INTERNAL']}",
        "EXTERNAL": f"broker.example.org:{ports['EXTERNAL']}",
    }


def test_stop_leaves_time_to_drain_and_flush() -> None:
    assert setting("KillSignal") == "SIGTERM"
    assert setting("KillMode") == "mixed"
    assert setting("TimeoutStopSec") == "2min"


def test_failed_broker_is_started_again_but_not_for_ever() -> None:
    assert setting("Restart") == "on-failure"
    attempts, pause_s = int(UNIT["Unit"]["StartLimitBurst"][0]), int(setting("RestartSec").removesuffix("s"))
    assert 0 < attempts * pause_s < int(UNIT["Unit"]["StartLimitIntervalSec"][0])


def test_user_is_the_one_that_sysusers_creates() -> None:
    (line,) = [line for line in read("systemd/flintmq.sysusers").splitlines() if not line.startswith("#")]
    kind, user, *_ = line.split()
    assert kind == "u"
    assert setting("User") == setting("Group") == user


def test_service_holds_no_privileges() -> None:
    assert setting("NoNewPrivileges") == "yes"
    assert setting("CapabilityBoundingSet") == ""
    assert SERVICE["SystemCallFilter"] == ["@system-service", "~@privileged"]
    # Without it a refused system call would kill the broker.
    assert setting("SystemCallErrorNumber") == "EPERM"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="toolchain: systemd-analyze is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # The program that the unit names is not installed on a developer's machine; any other will do here.
    text = read("systemd/flintmq.service").replace("/opt/flintmq/bin/flintmq", "/bin/true")
    unit = tmp_path / "flintmq.service"
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
