"""The secured variants of `deploy/`: users, ACLs, TLS, secrets from files, and the addresses of the others."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from flintmq.settings import LoadedSettings
from flintmq.settings.broker.authorization import STANDARD_AUTHORIZER
from flintmq.settings.listeners import protocols_of
from flintmq.settings.rest import rest_is_restricted
from unit.deploy.deployment_files import (
    DEPLOY,
    HTTP_PORT,
    advertised,
    parse_unit,
    read,
    read_yaml,
    settings_from,
)
from unit.deploy.test_compose import COMPOSE, broker_environment
from unit.deploy.test_kubernetes import CONTAINER, POD, pod_environment, pod_settings

SECURED_COMPOSE = read_yaml("compose.secured.yaml")
OVERLAY = read_yaml("kubernetes-secured/kustomization.yaml")
PATCH = read_yaml("kubernetes-secured/statefulset.yaml")
PATCHED: dict[str, Any] = PATCH["spec"]["template"]["spec"]


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read; each holds a secret."""
    paths: list[str] = []

    def read_secret(path: str) -> str:
        paths.append(path)
        return "the secret\n"

    monkeypatch.setattr("flintmq.settings.references.read_secret_file", read_secret)
    return paths


def compose_settings() -> LoadedSettings:
    environment = SECURED_COMPOSE["services"]["flintmq"]["environment"]
    own = {name: value.replace("$$", "$") for name, value in environment.items()}
    return settings_from({**broker_environment(), **own})


def kubernetes_settings() -> LoadedSettings:
    own = {variable["name"]: variable["value"] for variable in PATCHED["containers"][0]["env"]}
    return settings_from({**pod_environment(), **own}, "kubernetes-secured/flintmq.yaml")


def systemd_settings() -> LoadedSettings:
    return settings_from({}, "systemd/flintmq-secured.yaml")


VARIANTS = {"compose": compose_settings, "kubernetes": kubernetes_settings, "systemd": systemd_settings}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_listener_asks_for_a_user_and_the_network_is_encrypted(
    variant: str, secrets: list[str]
) -> None:
    config = VARIANTS[variant]().broker
    hosts = {listener.name: listener.host for listener in config.listeners}
    for name, protocol in protocols_of(config).items():
        assert protocol.has_sasl
        assert protocol.has_tls or hosts[name] == "127.0.0.1"
    assert config.sasl_enabled_mechanisms == ("SCRAM-SHA-512",)


@pytest.mark.parametrize("variant", VARIANTS)
def test_acls_decide_and_somebody_may_change_them(variant: str, secrets: list[str]) -> None:
    config = VARIANTS[variant]().broker
    assert config.authorizer_class_name == STANDARD_AUTHORIZER
    assert config.super_users == "User:admin"
    assert not config.allow_everyone_if_no_acl_found
    assert rest_is_restricted(config)
    assert config.flint_rest_authentication == ("basic",)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_password_comes_from_a_file(variant: str, secrets: list[str]) -> None:
    loaded = VARIANTS[variant]()
    assert loaded.broker.ssl_key_password == "the secret"
    assert set(secrets) == {loaded.static["ssl.key.password"].removeprefix("${file:").removesuffix("}")}


def test_compose_keeps_its_addresses_and_has_the_files(secrets: list[str]) -> None:
    loaded = compose_settings()
    assert advertised(loaded) == advertised(settings_from(broker_environment()))
    mounted = {f"/run/secrets/{name}" for name in SECURED_COMPOSE["services"]["flintmq"]["secrets"]}
    assert {*secrets, loaded.broker.ssl_keystore_location} == mounted
    used = {name for service in SECURED_COMPOSE["services"].values() for name in service["secrets"]}
    assert used == set(SECURED_COMPOSE["secrets"])
    assert SECURED_COMPOSE["services"].keys() <= COMPOSE["services"].keys()
    assert not re.search(r"(?<!\$)\$\{file", read("compose.secured.yaml"))


def test_prometheus_scrapes_as_a_user() -> None:
    command = SECURED_COMPOSE["services"]["prometheus"]["command"]
    (path,) = [word.partition("=")[2] for word in command if word.startswith("--config.file=")]
    secured = read_yaml(f"prometheus/{Path(path).name}")
    plain = read_yaml("prometheus/prometheus.yml")
    (job,), (plain_job,) = secured["scrape_configs"], plain["scrape_configs"]
    assert {name: job[name] for name in plain_job} == plain_job
    assert job["scheme"] == "https"
    mounted = {f"/run/secrets/{name}" for name in SECURED_COMPOSE["services"]["prometheus"]["secrets"]}
    assert {job["basic_auth"]["password_file"], job["tls_config"]["ca_file"]} == mounted
    assert str(HTTP_PORT) in job["static_configs"][0]["targets"][0]


def test_kubernetes_keeps_its_addresses_and_mounts_the_secret(secrets: list[str]) -> None:
    loaded = kubernetes_settings()
    assert advertised(loaded) == advertised(pod_settings())
    (mount,) = PATCHED["containers"][0]["volumeMounts"]
    (volume,) = PATCHED["volumes"]
    assert mount["name"] == volume["name"]
    for path in (*secrets, loaded.broker.ssl_keystore_location):
        assert str(path).startswith(mount["mountPath"] + "/")
        assert f"--from-file={Path(str(path)).name}" in read("kubernetes-secured/kustomization.yaml")
    assert volume["secret"]["secretName"] in read("kubernetes-secured/kustomization.yaml")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert PATCHED["containers"][0][probe] == {"httpGet": {"scheme": "HTTPS"}}


def test_every_file_of_the_overlay_is_used() -> None:
    listed = {*OVERLAY["configMapGenerator"][0]["files"], *(patch["path"] for patch in OVERLAY["patches"])}
    assert {path.name for path in (DEPLOY / "kubernetes-secured").iterdir()} == listed | {
        "kustomization.yaml"
    }
    assert PATCHED["containers"][0]["name"] == CONTAINER["name"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="toolchain: kubectl is not here")
def test_kustomize_merges_the_overlay() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / "kubernetes-secured")],
        capture_output=True,
        text=True,
        check=True,
    )
    (merged,) = [one for one in yaml.safe_load_all(done.stdout) if one["kind"] == "StatefulSet"]
    pod = merged["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert environment["FLINTMQ_LISTENER_SECURITY_PROTOCOL_MAP"] == "INTERNAL:SASL_SSL,EXTERNAL:SASL_SSL"
    assert environment["FLINTMQ_FLINT_REST_ALLOW_UNAUTHENTICATED"] == "false"
    assert environment.keys() == {variable["name"] for variable in CONTAINER["env"]}
    assert {volume["name"] for volume in pod["volumes"]} == {volume["name"] for volume in POD["volumes"]} | {
        "tls"
    }
    assert container["livenessProbe"]["httpGet"] == {
        "path": "/health/live",
        "port": "http",
        "scheme": "HTTPS",
    }


def test_systemd_hands_over_the_password_and_keeps_a_directory_for_the_audit_log(secrets: list[str]) -> None:
    loaded = systemd_settings()
    service = parse_unit(read("systemd/secured.conf"))["Service"]
    name, _, _ = service["LoadCredential"][0].partition(":")
    assert set(secrets) == {f"/run/credentials/flintmq.service/{name}"}
    directory = f"/var/log/{service['LogsDirectory'][0]}"
    assert str(Path(loaded.broker.flint_audit_log_file).parent) == directory
    assert advertised(loaded) == advertised(settings_from({}, "systemd/flintmq.yaml"))
