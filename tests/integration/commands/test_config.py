"""`flintmq config` and `flintmq --version`."""

from __future__ import annotations

from pathlib import Path

from support.cli.command import run


def test_config_lists_value_source_and_meaning_of_every_setting(tmp_path: Path) -> None:
    """B10, R9."""
    file = tmp_path / "flint.toml"
    file.write_text('"log.segment.bytes" = "2MB"\n')
    rows = run(
        "config", "--json", "--set", "num.partitions=7", "--config", str(file), env={"RETENTION": "1h"}
    ).json  # fmt: skip
    found = {row["name"]: row for row in rows}
    assert (found["num.partitions"]["value"], found["num.partitions"]["source"]) == (
        "7", "num.partitions on the command line",
    )  # fmt: skip
    assert found["log.retention.ms"]["value"] == "3600000"
    assert "RETENTION" in found["log.retention.ms"]["source"]
    assert str(file) in found["log.segment.bytes"]["source"]
    assert found["auto.create.topics.enable"]["source"] == "default"
    assert all(row["meaning"] for row in rows)


def test_config_selects_by_name_and_by_change() -> None:
    assert [row["name"] for row in run("config", "num.part*", "--json").json] == ["num.partitions"]
    assert [row["name"] for row in run("config", "--changed", "--json", "--port", "0").json] == ["listeners"]
    topics = run("config", "--topic", "retention.ms", "--json", "--set", "log.retention.hours=2").json
    (retention,) = (row for row in topics if row["name"] == "retention.ms")
    assert retention["value"] == "7200000"
    assert run("config", "xyzzy").error.strip() == "No setting has a name like xyzzy."


def test_config_refuses_what_serve_would_refuse() -> None:
    assert "did you mean" in run("config", "--set", "num.partitons=1", code=2).error


def test_version_is_told() -> None:
    version = run("version", "--json").json["version"]
    assert version in run("version").out
    assert version in run("--version").out
