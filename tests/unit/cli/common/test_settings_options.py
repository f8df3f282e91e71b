"""Settings as they are typed."""

from __future__ import annotations

import os

import pytest

from flintmq.cli.common.settings_options import load_settings, parse_assignment, parse_topic_settings
from flintmq.errors import ConfigurationError


def load(*assignments: str, environ: dict[str, str] | None = None, **options: object) -> dict[str, object]:
    given = {"port": None, "host": None, "data_dir": None, "config_file": None, **options}
    loaded = load_settings(assignments=assignments, environ=environ or {}, **given)  # type: ignore[arg-type]
    return {one.setting.name: one.value for one in loaded.values}


def test_flags_become_settings() -> None:
    values = load("num.partitions=3", port=0, host="0.0.0.0", data_dir="/d")
    assert values["num.partitions"] == 3
    assert values["log.dirs"] == ("/d",)
    assert str(values["listeners"][0]) == "PLAINTEXT://0.0.0.0:0"  # type: ignore[index]


def test_the_file_may_be_named_by_the_environment(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "flint.toml")
    with open(path, "w") as file:
        file.write('"num.partitions" = 9\n')
    assert load(environ={"FLINTMQ_CONFIG": path})["num.partitions"] == 9


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: os.PathLike[str]) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load(config_file=os.path.join(tmp_path, "missing.yaml"))


@pytest.mark.parametrize("text", ["novalue", "=x"])
def test_an_assignment_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        parse_assignment(text, "--set")


def test_topic_settings_take_units_and_refuse_near_misses_but_pass_on_the_unknown() -> None:
    assert parse_topic_settings(["retention.ms=7d", "future.option=x"]) == {
        "retention.ms": "604800000",
        "future.option": "x",
    }
    with pytest.raises(ConfigurationError, match=r"did you mean retention\.ms"):
        parse_topic_settings(["retention.mss=1"])
    with pytest.raises(ConfigurationError, match=r"retention\.ms"):
        parse_topic_settings(["retention.ms=soon"])
