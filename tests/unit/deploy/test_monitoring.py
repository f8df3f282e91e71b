"""Alert rules, dashboard and scrape configuration (B9, B11): every metric they use is one the broker has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from unit.deploy.deployment_files import DEPLOY, HTTP_PORT, ROOT, read, read_yaml

# Everything that deploy/ uses, in one place; docs/metrics.md says what each one is.
METRICS = {
    "flintmq_requests_total": "counter",
    "flintmq_request_errors_total": "counter",
    "flintmq_request_seconds": "histogram",
    "flintmq_bytes_in_total": "counter",
    "flintmq_bytes_out_total": "counter",
    "flintmq_connections": "gauge",
    "flintmq_partitions": "gauge",
    "flintmq_log_size_bytes": "gauge",
    "flintmq_logs_offline": "gauge",
    "flintmq_corrupt_ranges": "gauge",
    "flintmq_certificate_expiry_timestamp_seconds": "gauge",
    "flintmq_authentication_failures_total": "counter",
    "flintmq_authorization_denials_total": "counter",
    "flintmq_audit_events_left_out_total": "counter",
    "flintmq_uncleanable_partitions": "gauge",
    "flintmq_retention_bytes_total": "counter",
    "flintmq_compaction_bytes_total": "counter",
    "flintmq_lake_endangered_partitions": "gauge",
    "flintmq_lake_unsynced_deleted_total": "counter",
    "flintmq_scrubbed_bytes_total": "counter",
    "flintmq_log_flush_seconds": "histogram",
    "flintmq_recovery_seconds": "gauge",
    "flintmq_recovery_cut_bytes_total": "counter",
    "flintmq_memory_budget_bytes": "gauge",
    "flintmq_memory_budget_used_bytes": "gauge",
    "flintmq_loop_delay_seconds": "gauge",
    "flintmq_disk_free_bytes": "gauge",
    "flintmq_disk_total_bytes": "gauge",
    "process_resident_memory_bytes": "gauge",
    "process_cpu_seconds_total": "counter",
    "process_open_fds": "gauge",
}

DASHBOARD: dict[str, Any] = json.loads(read("grafana/dashboard.json"))
RULES: list[dict[str, Any]] = [
    rule for group in read_yaml("prometheus/alerts.yml")["groups"] for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PROMTOOL = shutil.which("promtool")
NEEDS_PROMTOOL = pytest.mark.skipif(
    PROMTOOL is None, reason="toolchain: promtool is not here (package prometheus)"
)

_SERIES = re.compile(r"\b(?:flintmq|process)_[a-z_]+")
_HISTOGRAM_SERIES = ("_bucket", "_sum", "_count")


def expressions() -> Iterator[str]:
    for rule in RULES:
        yield rule["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"]


def series() -> set[str]:
    return {name for expression in expressions() for name in _SERIES.findall(expression)}


def metric_of(name: str) -> str:
    """The metric a series belongs to: histograms are read through series of their own."""
    for suffix in _HISTOGRAM_SERIES:
        base = name.removesuffix(suffix)
        if base != name and METRICS.get(base) == "histogram":
            return base
    return name


def declared_names() -> set[str]:
    """The names the project declares, or the agreed list as long as it has no metrics."""
    package = ROOT / "src" / "flintmq" / "metrics"
    sources = [*package.rglob("*.py"), *package.parent.glob("metrics.py")]
    if not sources:
        return set(METRICS)
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    literals = set(re.findall(r"[\"']([a-z][a-z0-9_]+)[\"']", text))
    # A client library may add the prefix or `_total` by itself.
    with_prefix = literals | {f"flintmq_{name}" for name in literals}
    return with_prefix | {f"{name}_total" for name in with_prefix}


def test_the_list_is_exactly_what_alerts_and_dashboard_use() -> None:
    assert {metric_of(name) for name in series()} == set(METRICS)


def test_histograms_are_read_through_their_series_and_nothing_else_is() -> None:
    for name in series():
        assert (METRICS[metric_of(name)] == "histogram") == name.endswith(_HISTOGRAM_SERIES), name


@pytest.mark.parametrize("name", [name for name in METRICS if name.startswith("flintmq_")])
def test_metric_is_declared_by_the_broker(name: str) -> None:
    assert name in declared_names()


def test_counters_are_named_so() -> None:
    for name, kind in METRICS.items():
        assert (kind == "counter") == name.endswith("_total"), name


def test_alert_names_are_unique_and_each_says_how_urgent_it_is() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert "$labels.instance" in rule["annotations"]["summary"], rule["alert"]
        assert rule["annotations"]["description"], rule["alert"]


def test_every_alert_is_explained_in_the_docs() -> None:
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in RULES if f"`{rule['alert']}`" not in text] == []


def test_prometheus_scrapes_the_broker_under_the_name_the_alerts_expect() -> None:
    configuration = read_yaml("prometheus/prometheus.yml")
    (job,) = configuration["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"flintmq:{HTTP_PORT}"]}]
    jobs = {name for rule in RULES for name in re.findall(r'job="([^"]+)"', rule["expr"])}
    assert jobs == {job["job_name"]}
    assert all((DEPLOY / "prometheus" / name).is_file() for name in configuration["rule_files"])


def test_dashboard_panels_have_a_place_of_their_own() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for cell in (
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]
    identifiers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identifiers)) == len(identifiers)


def test_dashboard_panels_say_what_they_show_and_follow_the_chosen_brokers() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "instance"}
    for panel in PANELS:
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}", panel["title"]
            selectors = _SERIES.findall(target["expr"])
            assert target["expr"].count('instance=~"$instance"') == len(selectors), panel["title"]


def test_grafana_is_given_the_data_source_and_the_dashboard() -> None:
    (source,) = read_yaml("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    (provider,) = read_yaml("grafana/provisioning/dashboards/flintmq.yaml")["providers"]
    compose = read_yaml("compose.yaml")["services"]
    assert source["url"] == f"http://prometheus:{compose['prometheus']['ports'][0].split(':')[-1]}"
    mounted = [volume.split(":")[1] for volume in compose["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/flintmq.json" in mounted


def run_promtool(*arguments: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_PROMTOOL
def test_prometheus_takes_configuration_and_rules() -> None:
    run_promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))


@NEEDS_PROMTOOL
def test_alerts_fire_when_they_should_and_only_then() -> None:
    run_promtool("test", "rules", str(Path(__file__).with_name("alert_cases.yml")))


@NEEDS_PROMTOOL
def test_prometheus_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    queries = [
        target["expr"].replace("$__rate_interval", "1m") for panel in PANELS for target in panel["targets"]
    ]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "dashboard.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    run_promtool("check", "rules", str(file))
