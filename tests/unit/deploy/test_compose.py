"""The compose file (B11): addresses that are right inside and outside the network, and a gentle stop (N8)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from flintmq import __version__
from unit.deploy.deployment_files import (
    DEPLOY,
    HTTP_PORT,
    advertised,
    listening,
    parse_dockerfile,
    parse_environment,
    read,
    read_yaml,
    settings_from,
)

COMPOSE = read_yaml("compose.yaml")
BROKER: dict[str, Any] = COMPOSE["services"]["flintmq"]


def with_defaults(text: str, **variables: str) -> str:
    """Compose's own interpolation, as far as the file uses it."""
    return re.sub(
        r"\$\{(\w+):-([^}]*)\}", lambda match: variables.get(match.group(1), match.group(2)), str(text)
    )


def broker_environment(**variables: str) -> dict[str, str]:
    image = parse_environment(parse_dockerfile(read("Dockerfile")))
    own = {name: with_defaults(value, **variables) for name, value in BROKER["environment"].items()}
    return {**image, **own}


def published() -> dict[int, tuple[str, int]]:
    ports = {}
    for text in BROKER["ports"]:
        address, outside, inside = with_defaults(text).split(":")
        ports[int(inside)] = (address, int(outside))
    return ports


def test_each_listener_tells_its_clients_an_address_they_can_reach() -> None:
    loaded = settings_from(broker_environment())
    ports = listening(loaded)
    told = advertised(loaded)
    assert told["INTERNAL"] == f"flintmq:{ports['INTERNAL']}"
    _, outside = published()[ports["EXTERNAL"]]
    assert told["EXTERNAL"] == f"localhost:{outside}"
    assert ports["INTERNAL"] not in published()


def test_external_name_can_be_given() -> None:
    loaded = settings_from(broker_environment(EXTERNAL_HOST="broker.example.org"))
    assert advertised(loaded)["EXTERNAL"] == "broker.example.org:9092"


def test_commands_inside_the_container_use_the_internal_listener() -> None:
    environment = broker_environment()
    assert environment["FLINTMQ_BOOTSTRAP_SERVERS"] == advertised(settings_from(environment))["INTERNAL"]


def test_ports_are_published_on_loopback_unless_asked_otherwise() -> None:
    assert HTTP_PORT in published()
    for service in COMPOSE["services"].values():
        assert all(with_defaults(port).startswith("127.0.0.1:") for port in service["ports"])


def test_variables_of_the_file_are_not_taken_for_settings() -> None:
    assert not re.findall(r"\$\{FLINTMQ_", read("compose.yaml"))


def test_data_survives_the_container_and_the_broker_may_finish() -> None:
    volume, _, folder = BROKER["volumes"][0].partition(":")
    assert volume in COMPOSE["volumes"]
    assert folder == settings_from(broker_environment()).broker.log_dirs[0]
    assert BROKER["stop_grace_period"] == "2m"


def test_broker_has_no_privileges() -> None:
    assert BROKER["cap_drop"] == ["ALL"]
    assert BROKER["read_only"] is True
    assert "no-new-privileges:true" in BROKER["security_opt"]


def test_image_carries_the_version_of_the_project() -> None:
    assert BROKER["image"] == f"flintmq:{__version__}"
    build = BROKER["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")


@pytest.mark.parametrize("service", ["prometheus", "grafana"])
def test_monitoring_is_optional_pinned_and_finds_its_files(service: str) -> None:
    declared = COMPOSE["services"][service]
    assert declared["profiles"] == ["monitoring"]
    assert re.search(r":v?\d+\.\d+\.\d+$", declared["image"])
    for volume in declared["volumes"]:
        source = volume.split(":")[0]
        assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
