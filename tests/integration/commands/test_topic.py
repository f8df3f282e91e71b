"""`flintmq topic …` against a real broker (R6)."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from support.broker.broker_process import BrokerProcess, clean_environment
from support.cli.command import TIMEOUT_S, Flintmq


def test_a_topic_lives_from_creation_to_deletion(flintmq: Flintmq) -> None:
    created = flintmq(
        *("topic", "create", "life", "--partitions", "3", "--replication-factor", "1"),
        *("--config", "retention.ms=7d", "--json"),
    ).json
    assert (created["partitions"], created["replication_factor"], created["created"]) == (3, 1, True)
    flintmq("produce", "life", "a", "b", "--partition", "2")
    (listed,) = (one for one in flintmq("topic", "list", "--json").json if one["name"] == "life")
    assert (listed["partitions"], listed["records"]) == (3, 2)
    assert listed["bytes"] > 0
    flintmq("topic", "alter", "life", "--config", "max.message.bytes=2MB", "--partitions", "5")
    flintmq("topic", "alter", "life", "--reset", "retention.ms")
    described = flintmq("topic", "describe", "life", "--json").json
    assert described["id"] == created["id"]
    assert len(described["partitions"]) == 5
    third = described["partitions"][2]
    assert (third["leader"], third["start"], third["end"]) == (0, 0, 2)
    assert described["settings"] == [{"name": "max.message.bytes", "value": "2097152", "source": "topic"}]
    flintmq("topic", "delete", "life")
    assert all(one["name"] != "life" for one in flintmq("topic", "list", "--json").json)


def test_topics_are_shown_as_aligned_text_where_no_terminal_is(flintmq: Flintmq, topic: str) -> None:
    flintmq("produce", topic, "a", "b")
    header, row = flintmq("topic", "list", f"{topic[:-1]}?").out.splitlines()
    assert header.split() == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE"]
    assert row.split()[:4] == [topic, "1", "1", "2"]
    described = flintmq("topic", "describe", topic).out
    assert "1 partition, 2 records" in described
    assert "\x1b" not in described


def test_topics_are_shown_in_colour_at_a_terminal(shared_broker: BrokerProcess, topic: str) -> None:
    ours, theirs = pty.openpty()
    try:
        environment = clean_environment(
            {"TERM": "xterm-256color", "FLINTMQ_BOOTSTRAP_SERVERS": shared_broker.address}
        )
        command = [sys.executable, "-m", "flintmq", "topic", "describe", topic]
        done = subprocess.run(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, timeout=TIMEOUT_S
        )
        shown = os.read(ours, 64 * 1024).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    assert "\x1b[" in shown
    assert "leader" in shown


def test_creating_a_topic_that_exists_fails_unless_that_is_said_to_be_fine(
    flintmq: Flintmq, topic: str
) -> None:
    assert "exist" in flintmq("topic", "create", topic, code=1).error
    again = flintmq("topic", "create", topic, "--if-not-exists", "--json").json
    assert (again["created"], again["partitions"]) == (False, 1)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["create", "bad/name"], 1, "bad/name"),
        (["create", "x", "--partitions", "0"], 2, "partitions"),
        (["create", "x", "--replication-factor", "9"], 1, "9"),
        (["create", "x", "--config", "retention.mss=1"], 2, "did you mean retention.ms"),
        (["create", "x", "--config", "retention.ms=soon"], 2, "retention.ms"),
        (["describe", "missing"], 1, "there is no topic missing"),
        (["alter", "missing", "--partitions", "3"], 1, "there is no topic missing"),
        (["alter", "missing"], 2, "nothing to change"),
        (["delete", "missing"], 1, "there is no topic missing"),
    ],
)
def test_a_wrong_wish_about_topics_says_what_is_wrong(
    flintmq: Flintmq, args: list[str], code: int, words: str
) -> None:
    assert words in flintmq("topic", *args, code=code).error


def test_partitions_cannot_become_fewer(flintmq: Flintmq, topic: str) -> None:
    flintmq("topic", "alter", topic, "--partitions", "3")
    assert "3" in flintmq("topic", "alter", topic, "--partitions", "2", code=1).error


def test_deleting_what_is_not_there_is_fine_if_said_so(flintmq: Flintmq) -> None:
    assert flintmq("topic", "delete", "missing", "--if-exists", "--json").json == {"deleted": []}
