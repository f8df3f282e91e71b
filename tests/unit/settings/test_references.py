"""References in settings (`${env:…}`, `${file:…}`), and that no sensitive value is ever shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from flintmq.cli.common.connection import client_security
from flintmq.cli.main import main
from flintmq.client.credentials.login import Login
from flintmq.effects.real import SystemClock
from flintmq.effects.secrets import SECRET_BYTES_MAX
from flintmq.errors import ConfigurationError, RequestError
from flintmq.settings import (
    BROKER_SETTINGS,
    Alteration,
    AlterOperation,
    BrokerValues,
    SettingsFile,
    alter_broker,
    alter_topic,
    describe_broker,
    describe_topic,
    load,
    parse_broker_config,
)
from flintmq.settings.jaas import jaas_users
from flintmq.settings.references import redact, resolve_references

SENSITIVE = [one.name for one in BROKER_SETTINGS.values() if one.sensitive]
SECRET = "a$ecret=that;nobody'may\"see"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required "


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    return path


def test_a_variable_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_PASSWORD", SECRET)
    assert parse_broker_config({"ssl.key.password": "${env:KEY_PASSWORD}"}).ssl_key_password == SECRET


@pytest.mark.parametrize(
    ("content", "expected"),
    [("x", "x"), ("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), (" a b \n", " a b "), ("", "")],
)
def test_a_whole_file_without_the_newline_at_its_end(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "one"
    path.write_bytes(content.encode())
    assert resolve_references(f"${{file:{path}}}", "ssl.key.password") == expected


def test_one_property_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secrets.properties"
    path.write_text("# of the broker\nkey.password = first\nother=second\n")
    assert resolve_references(f"${{file:{path}:key.password}}", "ssl.key.password") == "first"
    assert resolve_references(f"a-${{file:{path}:other}}-b", "x") == "a-second-b"


def test_what_a_reference_stands_for_is_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER", "${env:INNER}")
    monkeypatch.setenv("INNER", "no")
    assert resolve_references("${env:OUTER}", "x") == "${env:INNER}"


@pytest.mark.parametrize("text", ["${vault:a}", "$env:A", "${env}", "plain", "${", "user_${x}"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert resolve_references(text, "x") == text


def test_a_password_with_quotes_fits_into_a_jaas_text(secret_file: Path) -> None:
    text = f'{JAAS}user_alice="${{file:{secret_file}}}";'
    assert jaas_users(resolve_references(text, "listener.name.a.plain.sasl.jaas.config")) == {"alice": SECRET}


def _pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "No such file or directory"),
        (lambda path: path.mkdir(), "not a regular file"),
        (_pipe, "not a regular file"),
        (lambda path: path.write_bytes(b"\xff\xfe" * 9), "not UTF-8"),
        (
            lambda path: path.write_bytes(b"s" * (SECRET_BYTES_MAX + 1)),
            f"larger than {SECRET_BYTES_MAX} bytes",
        ),
    ],
)
def test_an_unusable_file_is_named_with_the_reason(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "f"
    make(path)
    with pytest.raises(ConfigurationError, match=reason) as caught:
        parse_broker_config({"ssl.key.password": f"${{file:{path}}}"})
    assert "ssl.key.password" in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.key\.password.*variable NOWHERE is not set"):
        load(command_line=[("ssl.key.password", "${env:NOWHERE}")])
    path = tmp_path / "p"
    path.write_text(f"other={SECRET}")
    with pytest.raises(ConfigurationError, match="has no property key") as caught:
        load(command_line=[("ssl.key.password", f"${{file:{path}:key}}")])
    assert SECRET not in str(caught.value)


def test_every_source_of_settings_takes_references(
    secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTITIONS", "7")
    reference = f"${{file:{secret_file}}}"
    loaded = load(
        command_line=[("ssl.key.password", reference)],
        environ={"FLINTMQ_NUM_PARTITIONS": "${env:PARTITIONS}"},
        file=SettingsFile.of("f.yaml", f"ssl.keystore.password: '{reference}'"),
    )
    broker = loaded.broker
    assert (broker.ssl_key_password, broker.ssl_keystore_password, broker.num_partitions) == (
        SECRET,
        SECRET,
        7,
    )
    assert loaded.static["ssl.key.password"] == reference
    assert loaded.static["num.partitions"] == "${env:PARTITIONS}"


def test_units_of_what_a_reference_stands_for_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEP", "2h")
    assert load(command_line=[("log.retention.ms", "${env:KEEP}")]).broker.log_retention_ms == 7_200_000


def test_alter_configs_stores_the_reference(secret_file: Path) -> None:
    name = "listener.name.plaintext.ssl.key.password"
    reference = f"${{file:{secret_file}}}"
    altered = alter_broker(BrokerValues(), [Alteration(name, AlterOperation.SET, reference)], per_broker=True)
    assert altered == {name: reference}
    config = BrokerValues(dynamic=altered).config()
    assert config.listener_overrides["PLAINTEXT", "ssl.key.password"] == SECRET
    with pytest.raises(RequestError, match="NOWHERE is not set"):
        alter_broker(
            BrokerValues(), [Alteration(name, AlterOperation.SET, "${env:NOWHERE}")], per_broker=True
        )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("listener.name.ssl.sasl.enabled.mechanisms", "PLAIN,{}"),
        ("listener.name.ssl.ssl.keystore.location", "{}/a"),
        ("log.retention.ms", "{}"),
    ],
)
def test_alter_configs_reads_no_files_into_settings_that_errors_quote(
    secret_file: Path, name: str, text: str
) -> None:
    alterations = [Alteration(name, AlterOperation.SET, text.format(f"${{file:{secret_file}}}"))]
    with pytest.raises(RequestError, match="may be altered to a reference") as caught:
        alter_broker(BrokerValues(), alterations, per_broker=True)
    assert SECRET not in str(caught.value)


def test_a_part_of_a_value_is_not_shown_in_an_error(secret_file: Path) -> None:
    values = {"x": f"DEFAULT,${{file:{secret_file}}}"}
    assert redact(f"{SECRET!r} is no rule", values).count("${file:") == 1
    assert SECRET not in redact(f"{SECRET} is no rule", values)


def test_topics_never_read_files_of_the_broker(secret_file: Path) -> None:
    reference = f"${{file:{secret_file}}}"
    with pytest.raises(RequestError) as caught:
        alter_topic({}, [Alteration("retention.ms", AlterOperation.SET, reference)], parse_broker_config({}))
    assert SECRET not in str(caught.value)


def test_described_values_are_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEP", "12345678")
    values = BrokerValues(static={"log.retention.ms": "${env:KEEP}"})
    (broker,) = describe_broker(values, ["log.retention.ms"])
    (topic,) = describe_topic({}, values, ["retention.ms"])
    shown = [broker.value, topic.value, *(one.value for one in (*broker.synonyms, *topic.synonyms))]
    assert broker.value == topic.value == "${env:KEEP}"
    assert "12345678" not in shown


def test_a_bad_value_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD", SECRET)
    for name in ("num.partitions", "listeners", "super.users", "flint.log.level", "ssl.enabled.protocols"):
        with pytest.raises(ConfigurationError) as caught:
            load(command_line=[(name, "${env:BAD}")])
        assert name in str(caught.value)
        error: BaseException | None = caught.value
        while error is not None:
            assert SECRET not in str(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


# ---- every sensitive setting

_VALID = {"sasl.jaas.config": f'{JAAS}user_alice="{SECRET.replace(chr(34), "")}";'}


def test_there_are_sensitive_settings() -> None:
    assert {"sasl.jaas.config", "ssl.key.password", "ssl.keystore.key"} <= set(SENSITIVE)


@pytest.mark.parametrize("name", SENSITIVE)
def test_a_sensitive_value_is_not_described(name: str) -> None:
    value = _VALID.get(name, SECRET)
    names = [name]
    static = {name: value}
    if BROKER_SETTINGS[name].per_listener:
        names.append(f"listener.name.plaintext.{name}")
        static[names[-1]] = value
    entries = describe_broker(BrokerValues(static, {name: value}, static), names)
    assert [entry.name for entry in entries] == names
    for entry in entries:
        assert entry.sensitive
        assert entry.value is None
        assert not [one for one in entry.synonyms if one.value is not None]
    assert value not in repr(parse_broker_config(static))


@pytest.mark.parametrize("name", SENSITIVE)
def test_a_sensitive_value_is_not_listed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = _VALID.get(name, SECRET)
    monkeypatch.setenv("TEST_SECRET", value)
    for given in (value, "${env:TEST_SECRET}"):
        for options in ([], ["--json"]):
            shown = CliRunner().invoke(main, ["config", name, "--set", f"{name}={given}", *options])
            assert shown.exit_code == 0
            assert "(secret)" in shown.output
            assert value not in shown.output


@pytest.mark.parametrize("name", SENSITIVE)
def test_a_bad_sensitive_value_is_not_quoted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is wrong in its form or together with others; the error names the setting only."""
    bad = f'{SECRET} "unfinished'
    monkeypatch.setenv("TEST_SECRET", bad)
    for given in (bad, "${env:TEST_SECRET}"):
        others = [
            ("listeners", "SSL://:9093"),
            ("ssl.keystore.location", "/k.pem"),
            ("ssl.truststore.location", "/t.pem"),
            ("ssl.truststore.certificates", given),
            ("advertised.listeners", "NONE://a:1"),
        ]
        command_line = [(name, given), *(one for one in others if one[0] != name)]
        with pytest.raises(ConfigurationError) as caught:
            load(command_line=command_line)
        assert SECRET not in str(caught.value)
        with pytest.raises(RequestError) as refused:
            alter_broker(
                BrokerValues(static=dict(others[:2])),
                [
                    Alteration(f"listener.name.ssl.{name}", AlterOperation.SET, given),
                    Alteration("listener.name.ssl.ssl.keystore.type", AlterOperation.SET, "other"),
                ],
                per_broker=True,
            )
        assert SECRET not in str(refused.value)


# ---- clients


def test_client_properties_take_references(
    tmp_path: Path, secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.cli.common.connection._command_config", str(tmp_path / "c.properties"))
    (tmp_path / "c.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        f"sasl.password=${{file:{secret_file}}}\n"
    )
    login = Login(client_security(), SystemClock())
    assert login.begin().first() == f"\0alice\0{SECRET}".encode()
    secret_file.unlink()
    with pytest.raises(ConfigurationError, match=r"sasl\.password.*No such file"):
        login.begin()
