"""The Kubernetes manifests (B11): parts that must agree with each other, and with the broker, do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from flintmq import __version__
from flintmq.settings import LoadedSettings
from unit.deploy.deployment_files import (
    DEPLOY,
    HTTP_ADDRESS,
    HTTP_PORT,
    advertised,
    listening,
    parse_command,
    read_yaml,
    settings_from,
)

KUSTOMIZATION = read_yaml("kubernetes/kustomization.yaml")
STATEFUL_SET = read_yaml("kubernetes/statefulset.yaml")
SERVICE = read_yaml("kubernetes/service.yaml")
EXTERNAL = read_yaml("kubernetes/service-external.yaml")
POLICY = read_yaml("kubernetes/networkpolicy.yaml")

POD: dict[str, Any] = STATEFUL_SET["spec"]["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
POD_LABELS = STATEFUL_SET["spec"]["template"]["metadata"]["labels"]

# What the downward API would put there.
FIELDS = {"metadata.name": "flintmq-0", "metadata.namespace": "messaging", "status.hostIP": "192.0.2.7"}


def pod_environment() -> dict[str, str]:
    """The container's environment after Kubernetes has replaced `$(NAME)` by variables defined before."""
    environment: dict[str, str] = {}
    for variable in CONTAINER["env"]:
        if "value" in variable:
            text = variable["value"]
            value = re.sub(
                r"\$\((\w+)\)", lambda match: environment.get(match.group(1), match.group(0)), text
            )
        else:
            value = FIELDS[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        environment[variable["name"]] = value
    return environment


def pod_settings() -> LoadedSettings:
    return settings_from(pod_environment(), "kubernetes/flintmq.yaml")


def test_every_manifest_is_part_of_the_kustomization() -> None:
    listed = {*KUSTOMIZATION["resources"], *KUSTOMIZATION["configMapGenerator"][0]["files"]}
    present = {path.name for path in (DEPLOY / "kubernetes").iterdir()}
    assert present == listed | {"kustomization.yaml"}


def test_clients_inside_and_outside_are_told_addresses_they_can_reach() -> None:
    loaded = pod_settings()
    assert listening(loaded) == {"INTERNAL": PORTS["kafka"], "EXTERNAL": PORTS["kafka-external"]}
    (external_port,) = EXTERNAL["spec"]["ports"]
    assert advertised(loaded) == {
        "INTERNAL": f"flintmq-0.{SERVICE['metadata']['name']}.messaging.svc:{SERVICE['spec']['ports'][0]['port']}",
        "EXTERNAL": f"192.0.2.7:{external_port['nodePort']}",
    }


def test_pod_has_a_name_of_its_own_through_the_headless_service() -> None:
    assert STATEFUL_SET["spec"]["serviceName"] == SERVICE["metadata"]["name"]
    assert SERVICE["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("service", [SERVICE, EXTERNAL], ids=["internal", "external"])
def test_service_selects_the_pod_and_targets_its_ports(service: dict[str, Any]) -> None:
    assert service["spec"]["selector"].items() <= POD_LABELS.items()
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= PORTS.keys()


def test_network_policy_covers_every_port_of_the_pod() -> None:
    assert POLICY["spec"]["podSelector"]["matchLabels"].items() <= POD_LABELS.items()
    allowed = [port["port"] for rule in POLICY["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(allowed) == sorted(PORTS)


def test_variables_of_service_links_cannot_be_taken_for_settings() -> None:
    # A service `flintmq-external` would give FLINTMQ_EXTERNAL_PORT, an unknown setting, which stops the start.
    assert EXTERNAL["metadata"]["name"].startswith("flintmq-")
    assert POD["enableServiceLinks"] is False


def test_settings_file_is_where_the_command_looks() -> None:
    parsed = parse_command(CONTAINER["args"])
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    assert parsed["config_file"] == f"{mounts['settings']}/{generator['files'][0]}"
    assert {"name": "settings", "configMap": {"name": generator["name"]}} in POD["volumes"]


def test_data_is_on_the_claimed_volume() -> None:
    (claim,) = STATEFUL_SET["spec"]["volumeClaimTemplates"]
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == pod_settings().broker.log_dirs[0]
    assert STATEFUL_SET["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("probe", "path"),
    [
        ("startupProbe", "/health/ready"),
        ("readinessProbe", "/health/ready"),
        ("livenessProbe", "/health/live"),
    ],
)
def test_probe_asks_the_health_listener(probe: str, path: str) -> None:
    assert CONTAINER[probe]["httpGet"] == {"path": path, "port": "http"}
    assert PORTS["http"] == HTTP_PORT
    assert pod_environment()[HTTP_ADDRESS] == "0.0.0.0"


def test_recovery_of_a_large_log_is_not_interrupted() -> None:
    probe = CONTAINER["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 1800


def test_broker_has_time_to_drain_and_memory_for_its_budget() -> None:
    assert POD["terminationGracePeriodSeconds"] >= 120
    limit = CONTAINER["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    assert pod_settings().broker.queued_max_request_bytes <= int(limit[:-2]) * 1024**3 // 2
    # Throttling a broker shows as latency.
    assert "cpu" not in CONTAINER["resources"]["limits"]


def test_pod_meets_the_restricted_security_standard() -> None:
    pod, container = POD["securityContext"], CONTAINER["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] == pod["fsGroup"] == 10001
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["allowPrivilegeEscalation"] is False
    assert container["readOnlyRootFilesystem"] is True
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert POD["automountServiceAccountToken"] is False


def test_image_carries_the_version_of_the_project() -> None:
    assert KUSTOMIZATION["images"] == [{"name": CONTAINER["image"], "newTag": __version__}]


def test_metrics_are_annotated_for_discovery() -> None:
    annotations = STATEFUL_SET["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(HTTP_PORT)
    assert annotations["prometheus.io/scrape"] == "true"
