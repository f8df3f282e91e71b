"""`flintmq user`, and commands that connect with `--command-config` or the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flintmq.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from flintmq.protocol.scram import ScramMechanism
from support.broker.broker_process import BrokerProcess
from support.broker.secured import USERS, SaslWire, secured_broker
from support.security.commands import flintmq

SASL = {"FLINTMQ_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "FLINTMQ_SASL_MECHANISM": "PLAIN"}
ADMIN = {**SASL, "FLINTMQ_SASL_USERNAME": "admin", "FLINTMQ_SASL_PASSWORD": USERS["admin"]}


def test_users_through_a_broker(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data") as broker:
        at = ("-b", broker.address)
        flintmq("user", "add", "bob", "--password-file", "-", *at, env=ADMIN, text="secret\n")
        listed = flintmq("user", "list", *at, env=ADMIN).stdout
        assert listed.split()[3:] == ["bob", "SCRAM-SHA-512", "8192"]
        with SaslWire(broker.address) as wire:
            assert wire.authenticate("bob", "secret", "SCRAM-SHA-512").error_code == 0
        config = tmp_path / "bob.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=bob\nsasl.password=secret\n"
        )
        flintmq("topic", "create", "t", *at, "--command-config", str(config))
        flintmq("produce", "t", "hello", *at, "--command-config", str(config))
        read = flintmq(
            "consume", "t", "-b", broker.address, "--until-end", env={"FLINTMQ_COMMAND_CONFIG": str(config)}
        )
        assert "hello" in read.stdout
        flintmq("user", "delete", "bob", "--yes", *at, env=ADMIN)
        refused = flintmq("topic", "list", *at, "--command-config", str(config), fails=True)
        assert "rejected the authentication" in refused.stderr
        assert "secret" not in refused.stderr
        assert "there is no user bob" in flintmq("user", "delete", "bob", *at, env=ADMIN, fails=True).stderr


def test_the_first_user_before_the_first_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    both = [word for one in ScramMechanism for word in ("--mechanism", one.value)]
    flintmq("user", "add", "root", "--password-file", "-", "--data-dir", str(data), *both, text="secret\n")
    assert flintmq("user", "list", "--data-dir", str(data)).stdout.count("root") == 2
    with BrokerProcess(data, ["--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0"]) as broker:
        for mechanism in ScramMechanism:
            with SaslWire(broker.address) as wire:
                assert wire.authenticate("root", "secret", mechanism.value).error_code == 0
        assert "in use" in flintmq("user", "list", "--data-dir", str(data), fails=True).stderr
    flintmq("user", "delete", "root", "--yes", "--data-dir", str(data))
    assert "root" not in flintmq("user", "list", "--data-dir", str(data)).stdout


def test_a_users_file_takes_effect_while_the_broker_runs(tmp_path: Path) -> None:
    users = tmp_path / "users"
    flintmq("user", "add", "carol", "--password-file", "-", "--users-file", str(users), text="one\n")
    assert os.stat(users).st_mode & 0o777 == 0o600
    assert "one" not in users.read_text()
    with secured_broker(tmp_path / "data", f"flint.users.file={users}") as broker:
        for password, code in (("one", 0), ("two", 58)):
            with SaslWire(broker.address) as wire:
                assert wire.authenticate("carol", password).error_code == code
        flintmq("user", "add", "carol", "--password-file", "-", "--users-file", str(users), text="two\n")
        for user, password, code in (("carol", "one", 58), ("carol", "two", 0), ("alice", USERS["alice"], 0)):
            with SaslWire(broker.address) as wire:
                assert wire.authenticate(user, password).error_code == code


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--iterations", "1"], "between 4096 and 16384"),
        (["--password", "x"], "not both"),
        (["--users-file", "u"], "not both"),
    ],
)
def test_mistakes_say_what_to_do(tmp_path: Path, args: list[str], words: str) -> None:
    base = ("user", "add", "a", "--password-file", "-", "--data-dir", str(tmp_path / "data"))
    assert words in flintmq(*base, *args, text="secret\n", fails=True).stderr


def test_a_password_on_the_command_line_is_warned_of(tmp_path: Path) -> None:
    done = flintmq("user", "add", "a", "--password", "secret", "--data-dir", str(tmp_path / "data"))
    assert "can be seen by others" in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data", "flint.log.level=DEBUG") as broker:
        settings = broker.args
        shown = flintmq("config", *settings).stdout
        with SaslWire(broker.address) as wire:
            wire.authenticate("admin", USERS["admin"])
            broker_resource = DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=4, resource_name="0"
            )
            request = DescribeConfigsRequest(resources=[broker_resource], include_synonyms=True)
            described = wire.ask(request, 4)
        assert isinstance(described, DescribeConfigsResponse)
        (result,) = described.results
        (secret,) = (one for one in result.configs if one.name.endswith("plain.sasl.jaas.config"))
        assert secret.is_sensitive
        assert "-secret" not in shown + broker.errors + repr(described)
