"""The Dockerfile (B11): small, pinned, not root, and it stops the way the broker wants to be stopped."""

from __future__ import annotations

import re
import tomllib

from unit.deploy.deployment_files import (
    HTTP_ADDRESS,
    HTTP_PORT,
    ROOT,
    Instruction,
    listening,
    parse_command,
    parse_dockerfile,
    parse_environment,
    read,
    settings_from,
)

INSTRUCTIONS = parse_dockerfile(read("Dockerfile"))
_LAST_STAGE = max(index for index, item in enumerate(INSTRUCTIONS) if item.name == "FROM")
BUILD, IMAGE = INSTRUCTIONS[:_LAST_STAGE], INSTRUCTIONS[_LAST_STAGE:]


def only(name: str) -> Instruction:
    (found,) = [item for item in IMAGE if item.name == name]
    return found


def build_commands() -> str:
    return " && ".join(item.value for item in BUILD if item.name == "RUN")


def locked_packages() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "locks" / "core.txt").read_text(), re.MULTILINE))


def test_base_image_is_pinned_by_tag_and_the_same_in_both_stages() -> None:
    arguments = dict(item.value.split("=", 1) for item in INSTRUCTIONS if item.name == "ARG")
    bases = [item.value.split()[0] for item in INSTRUCTIONS if item.name == "FROM"]
    assert bases == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}"]
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", arguments["PYTHON_IMAGE"])


def test_dependencies_are_installed_from_the_lock_by_hash() -> None:
    copied = [item.value.split()[0] for item in BUILD if item.name == "COPY"]
    assert "locks/core.txt" in copied
    installs = re.findall(r"pip \S+ \S+ install ([^&]+)", build_commands())
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "--no-deps --no-build-isolation ." in installs[1]


def test_only_packages_the_broker_does_not_need_are_removed() -> None:
    match = re.search(r"uninstall --yes ([^&]+)", build_commands())
    assert match is not None
    removed = set(match.group(1).split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {re.split(r"[^a-z0-9-]", text)[0] for text in project["project"]["dependencies"]}
    assert removed <= locked_packages()
    assert {"hatchling"} <= removed
    assert not removed & needed
    # A dependency of a dependency that went too would be found when the image is built.
    assert build_commands().endswith("check")


def test_build_context_holds_what_is_copied_and_nothing_else() -> None:
    copied = {
        source
        for item in INSTRUCTIONS
        if item.name == "COPY" and not item.flag("from")
        for source in item.value.split()[:-1]
    }
    lines = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] not in "# "
    ]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied
    assert all((ROOT / source).exists() for source in copied)


def test_broker_does_not_run_as_root_and_owns_its_volume() -> None:
    user, group = (int(number) for number in only("USER").value.split(":"))
    assert user > 0
    assert group > 0
    environment = parse_environment(IMAGE)
    assert only("VOLUME").value == environment["FLINTMQ_LOG_DIRS"]
    (preparation,) = [item.value for item in IMAGE if item.name == "RUN"]
    assert f"--owner={user} --group={group}" in preparation
    assert preparation.endswith(environment["FLINTMQ_LOG_DIRS"])


def test_stop_is_the_signal_that_drains_and_flushes() -> None:
    assert only("STOPSIGNAL").value == "SIGTERM"
    # The exec form: a shell in between would keep the signal to itself.
    assert only("ENTRYPOINT").command() == ["flintmq"]
    assert parse_command(only("CMD").command()) is not None


def test_health_check_asks_the_broker_on_the_port_it_listens_on() -> None:
    program, *arguments = only("HEALTHCHECK").command()
    environment = parse_environment(IMAGE)
    (port,) = listening(settings_from(environment)).values()
    assert program == "flintmq"
    assert arguments[0] == "ping"
    assert parse_command(arguments)["count"] == 1
    assert environment["FLINTMQ_BOOTSTRAP_SERVERS"] == f"127.0.0.1:{port}"


def test_image_listens_on_every_interface_and_exposes_its_ports() -> None:
    environment = parse_environment(IMAGE)
    loaded = settings_from(environment)
    assert [item.host for item in loaded.broker.listeners] == [""]
    assert environment[HTTP_ADDRESS] == "0.0.0.0"
    assert set(only("EXPOSE").value.split()) == {str(loaded.broker.listeners[0].port), str(HTTP_PORT)}
