"""Loading at the start: precedence (F9), short names and the environment (B10), files, messages."""

from __future__ import annotations

import pytest

from flintmq.errors import ConfigurationError
from flintmq.settings import LoadedSettings, SettingOrigin, SettingsFile, load


def yaml(text: str) -> SettingsFile:
    return SettingsFile.of("flint.yaml", text)


def origin(loaded: LoadedSettings, name: str) -> SettingOrigin:
    return next(value.origin for value in loaded.values if value.setting.name == name)


def addresses(loaded: LoadedSettings) -> list[str]:
    return [str(listener) for listener in loaded.broker.listeners]


@pytest.mark.parametrize(
    ("layers", "partitions", "expected"),
    [
        (0, 1, SettingOrigin.DEFAULT),
        (1, 2, SettingOrigin.FILE),
        (2, 3, SettingOrigin.ENVIRONMENT),
        (3, 4, SettingOrigin.ENVIRONMENT),
        (4, 5, SettingOrigin.COMMAND_LINE),
    ],
)
def test_command_line_beats_environment_beats_file_beats_default(
    layers: int, partitions: int, expected: SettingOrigin
) -> None:
    environ = {}
    if layers >= 2:
        environ["KAFKA_CFG_NUM_PARTITIONS"] = "3"
    if layers >= 3:
        environ["FLINTMQ_NUM_PARTITIONS"] = "4"
    loaded = load(
        file=yaml("num.partitions: 2") if layers >= 1 else None,
        environ=environ,
        command_line=[("num.partitions", "5")] if layers >= 4 else [],
    )
    assert loaded.broker.num_partitions == partitions
    assert origin(loaded, "num.partitions") is expected


def test_the_last_word_on_the_command_line_counts() -> None:
    loaded = load(command_line=[("num.partitions", "5"), ("num.partitions", "6")])
    assert loaded.broker.num_partitions == 6


def test_a_higher_layer_in_hours_beats_a_lower_one_in_milliseconds() -> None:
    loaded = load(file=yaml("log.retention.ms: 1000"), command_line=[("log.retention.hours", "2")])
    assert (loaded.broker.log_retention_ms, loaded.broker.log_retention_hours) == (None, 2)
    assert origin(loaded, "log.retention.ms") is SettingOrigin.DEFAULT


@pytest.mark.parametrize(
    "file",
    [
        SettingsFile.of("a.yaml", "log.retention.ms: 1\nlog.dirs: [/data]\nlog.preallocate: true"),
        SettingsFile.of("a.yaml", "log: {retention: {ms: 1}, dirs: /data, preallocate: true}"),
        SettingsFile.of("a.yaml", "log.retention:\n  ms: 1\nlog:\n  dirs: /data\n  preallocate: true"),
        SettingsFile.of("a.toml", '"log.retention.ms" = 1\n"log.dirs" = ["/data"]\n"log.preallocate" = true'),
        SettingsFile.of("a.toml", '[log]\ndirs = "/data"\npreallocate = true\n[log.retention]\nms = 1'),
        SettingsFile.of("a.json", '{"log": {"retention.ms": 1, "dirs": "/data", "preallocate": true}}'),
    ],
)
def test_flat_and_nested_files_say_the_same(file: SettingsFile) -> None:
    assert load(file=file).static == {"log.retention.ms": "1", "log.dirs": "/data", "log.preallocate": "true"}


def test_an_empty_file_or_value_changes_nothing() -> None:
    assert load(file=yaml("")).static == {}
    assert load(file=yaml("broker.rack:")).static == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num.partitons: 3", "num.partitons in flint.yaml: did you mean num.partitions"),
        ("retention.ms: 3", "it is a setting of topics; for all topics set log.retention.ms"),
        ("zzz: 1", "`flintmq config` lists"),
        ("num.partitions: many", "num.partitions in flint.yaml: Invalid value many"),
        ("num.partitions: 1\nnum: {partitions: 2}", "num.partitions is given twice"),
        ("num.partitions: 1\nnum.partitions: 2", "num.partitions is given twice"),
        ("log.dir: /a\nlog.dirs: /b", "set the same thing"),
        ("broker_ports: [1]\nlisteners: PLAINTEXT://:2", "both set the addresses"),
        ("broker_ports: [http]", "expected ports such as"),
        ("kafka_hostname: a b", "kafka_hostname in flint.yaml: .*NAME://host:port"),
        ("num.partitions: 2024-01-01", "expected text, a number"),
        ("- 1", "expected settings such as"),
        ("a: [", "flint.yaml: not valid YAML"),
    ],
)
def test_mistake_in_a_file_names_the_place_and_the_way_out(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(file=yaml(text))


def test_broken_toml_names_the_file() -> None:
    with pytest.raises(ConfigurationError, match=r"a\.toml: not valid TOML"):
        load(file=SettingsFile.of("a.toml", "x ="))


def test_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(
        ConfigurationError, match="FLINTMQ_LOG_RETENTON_MS: did you mean FLINTMQ_LOG_RETENTION_MS"
    ):
        load(environ={"FLINTMQ_LOG_RETENTON_MS": "1"})
    with pytest.raises(ConfigurationError, match="environment variable LOG_LEVEL"):
        load(environ={"LOG_LEVEL": "loud"})


def test_variables_of_others_are_left_alone() -> None:
    environ = {
        "FLINTMQ_PORT": "tcp://10.0.0.1:9092",
        "FLINTMQ_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "FLINTMQ_SERVICE_HOST": "10.0.0.1",
        "FLINTMQ_BOOTSTRAP_SERVERS": "localhost:9092",
        "KAFKA_NUM_PARTITIONS": "7",
        "NUM_PARTITIONS": "7",
    }
    loaded = load(environ=environ)
    assert (loaded.static, loaded.warnings) == ({}, ())


def test_short_names_of_b10_in_a_file() -> None:
    loaded = load(
        file=yaml(
            "retention: 5m\nbroker_ports: [9092, 9094]\nkafka_hostname: 0.0.0.0\n"
            "record_storage_path: ./wal\nkafka_cfg_num_partitions: 8\nlog_level: debug\n"
        )
    )
    assert loaded.broker.log_retention_ms == 300_000
    assert addresses(loaded) == ["PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://0.0.0.0:9094"]
    assert loaded.broker.log_dirs == ("./wal",)
    assert loaded.broker.num_partitions == 8
    assert loaded.broker.flint_log_level == "DEBUG"
    assert loaded.warnings == ()


def test_short_names_of_b10_in_the_environment() -> None:
    environ = {"RETENTION": "1h", "BROKER_PORTS": "9092,9094", "KAFKA_HOSTNAME": "::", "LOG_LEVEL": "WARN"}
    loaded = load(environ=environ)
    assert loaded.broker.log_retention_ms == 3_600_000
    assert addresses(loaded) == ["PLAINTEXT://[::]:9092", "PLAINTEXT://[::]:9094"]
    assert loaded.broker.flint_log_level == "WARNING"


def test_short_names_of_the_http_listener_and_the_profile() -> None:
    opened = "rest_port: 8080\nrest_host: 0.0.0.0\nflint.rest.allow.unauthenticated: true"
    loaded = load(file=yaml(opened), environ={"PROFILE": "true"})
    broker = loaded.broker
    assert (broker.flint_rest_host, broker.flint_rest_port, broker.flint_profile) == ("0.0.0.0", 8080, True)
    assert load(environ={"FLINTMQ_REST_HOST": "::1"}).broker.flint_rest_host == "::1"


@pytest.mark.parametrize("text", ["", "-1"])
def test_the_http_port_can_be_nothing(text: str) -> None:
    assert load(environ={"REST_PORT": text}).broker.flint_rest_port == -1
    with pytest.raises(ConfigurationError, match=r"REST_PORT.*between -1 and 65535"):
        load(environ={"REST_PORT": "65536"})


def test_features_that_are_not_there_yet_warn_instead_of_failing() -> None:
    loaded = load(file=yaml("max_memory: 1GB\npurge_on_fetch: true"), environ={"PLUGIN_PATHS": "a.wasm"})
    assert loaded.static == {}
    assert len(loaded.warnings) == 3
    assert all("not available in this version, ignored" in warning for warning in loaded.warnings)


def test_asking_for_the_absence_of_an_absent_feature_is_quiet() -> None:
    assert load(file=yaml("purge_on_fetch: false\nplugin_paths: []")).warnings == ()


def test_port_on_the_command_line_keeps_the_hosts_below() -> None:
    port = [("broker_ports", "9999")]
    assert addresses(load(command_line=port)) == ["PLAINTEXT://127.0.0.1:9999", "PLAINTEXT://[::1]:9999"]
    below = yaml("listeners: PLAINTEXT://0.0.0.0:9092")
    assert addresses(load(file=below, command_line=port)) == ["PLAINTEXT://0.0.0.0:9999"]


def test_port_cannot_choose_among_named_listeners() -> None:
    below = yaml("listeners: A://:1,B://:2\nlistener.security.protocol.map: A:PLAINTEXT,B:PLAINTEXT")
    with pytest.raises(ConfigurationError, match="several named listeners"):
        load(file=below, command_line=[("broker_ports", "3")])


@pytest.mark.parametrize(
    ("name", "text", "plain"),
    [
        ("message.max.bytes", "2MB", "2097152"),
        ("message.max.bytes", "1.5 MiB", "1572864"),
        ("message.max.bytes", "64k", "65536"),
        ("log.retention.bytes", "1tb", "1099511627776"),
        ("log.retention.ms", "30s", "30000"),
        ("log.retention.ms", "1.5h", "5400000"),
        ("log.retention.ms", "7d", "604800000"),
        ("log.retention.ms", "-1", "-1"),
        ("log.cleaner.min.cleanable.ratio", "80%", "0.8"),
    ],
)
def test_units_for_people(name: str, text: str, plain: str) -> None:
    assert load(command_line=[(name, text)]).static == {name: plain}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("message.max.bytes", "1h"),
        ("log.retention.ms", "1GB"),
        ("num.partitions", "1k"),
        ("log.retention.ms", "1y"),
    ],
)
def test_unit_of_another_quantity_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        load(command_line=[(name, text)])


def test_values_that_contradict_each_other_are_refused_across_layers() -> None:
    with pytest.raises(ConfigurationError, match="not among the listeners"):
        load(file=yaml("advertised.listeners: OUTSIDE://h:1"), command_line=[("broker_ports", "1")])
