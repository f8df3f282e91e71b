"""Describing and listing transactions, and the patterns that select them (F6, KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.transactions.linear_regex import LinearRegex
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeTransactionsResponse, ListTransactionsRequest
from unit.coordinator.transactions.driver import START_MS, Driver


@pytest.fixture(name="driver")
def two_transactions() -> Driver:
    driver = Driver()
    driver.producer("idle-1")
    driver.advance(100)
    producer = driver.producer("busy-1")
    driver.add_all(producer, [("b", 1), ("a", 0), ("b", 0)], transactional_id="busy-1")
    driver.advance(1_000)
    return driver


def listed(driver: Driver, request: ListTransactionsRequest) -> list[str]:
    reply = driver.list(request)
    assert reply.error_code == 0
    return sorted(one.transactional_id for one in reply.transaction_states)


def test_an_ongoing_transaction_is_described(driver: Driver) -> None:
    found = driver.describe("busy-1")
    assert found == DescribeTransactionsResponse.TransactionState(
        transactional_id="busy-1",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=START_MS + 100,
        producer_id=1001,
        producer_epoch=0,
        topics=[
            DescribeTransactionsResponse.TopicData(topic="a", partitions=[0]),
            DescribeTransactionsResponse.TopicData(topic="b", partitions=[0, 1]),
        ],
    )


def test_an_id_that_nobody_has_is_not_found(driver: Driver) -> None:
    assert driver.describe("nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert driver.describe("").error_code == ErrorCode.INVALID_REQUEST


def test_all_transactions_are_listed(driver: Driver) -> None:
    reply = driver.list(ListTransactionsRequest())
    assert [
        (one.transactional_id, one.producer_id, one.transaction_state) for one in reply.transaction_states
    ] == [
        ("idle-1", 1000, "Empty"),
        ("busy-1", 1001, "Ongoing"),
    ]


def test_filters_select(driver: Driver) -> None:
    assert listed(driver, ListTransactionsRequest(state_filters=["Ongoing"])) == ["busy-1"]
    assert listed(driver, ListTransactionsRequest(producer_id_filters=[1000])) == ["idle-1"]
    assert listed(driver, ListTransactionsRequest(transactional_id_pattern="bu.*")) == ["busy-1"]
    assert listed(driver, ListTransactionsRequest(transactional_id_pattern="bu")) == []
    assert listed(driver, ListTransactionsRequest(transactional_id_pattern="")) == ["busy-1", "idle-1"]
    assert "busy-1" in listed(driver, ListTransactionsRequest(duration_filter=999))
    assert "busy-1" not in listed(driver, ListTransactionsRequest(duration_filter=1_000))


def test_states_that_do_not_exist_are_named(driver: Driver) -> None:
    reply = driver.list(ListTransactionsRequest(state_filters=["Unheard", "Dead"]))
    assert reply.unknown_state_filters == ["Unheard"]
    assert reply.transaction_states == []


@pytest.mark.parametrize("expression", ["(", "(?=a)b", r"(a)\1", "[b-a]", "((a{30}){30}){30}", "(" * 5_000])
def test_a_pattern_that_is_not_served_is_refused(driver: Driver, expression: str) -> None:
    reply = driver.list(ListTransactionsRequest(transactional_id_pattern=expression))
    assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    ("expression", "text", "matches"),
    [
        ("", "", True),
        ("", "a", False),
        ("abc", "abc", True),
        ("abc", "abcd", False),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("(?i)AbC", "aBc", True),
        ("(?i)[^a]", "A", False),
        ("a|bc|d", "bc", True),
        ("(ab)*", "ababab", True),
        ("(ab)*", "aba", False),
        ("(?:a*)*b", "aab", True),
        ("a+?b", "aab", True),
        ("a??b", "b", True),
        ("x{2,3}", "x", False),
        ("x{2,3}", "xxx", True),
        ("x{2,3}", "xxxx", False),
        ("x{2,}", "xxxxx", True),
        ("x{2}y", "xxy", True),
        ("^a$", "a", True),
        ("a^b", "ab", False),
        ("a$b", "ab", False),
        ("^^$$", "", True),
        ("[a-c_]+", "ab_c", True),
        ("[^a-c]+", "xyz", True),
        ("[^a-c]+", "xbz", False),
        ("[^x]y", "zy", True),
        (r"\d+\D", "12x", True),
        (r"\w+\W\s\S", "a_9- x", True),
        (r"[\d\s]+", "1 2", True),
        (r"\d", "٣", False),
        (r"a\.b", "axb", False),
        ("ü.", "üö", True),
    ],
)
def test_patterns_match_as_they_do_in_kafka(expression: str, text: str, matches: bool) -> None:
    assert LinearRegex(expression).matches(text) is matches


@pytest.mark.parametrize("expression", ["(a+)+", "(a|a)*", "(a|aa)+", "(a*)*", "(.*)*a.*"])
def test_patterns_that_are_slow_elsewhere_are_matched_at_once(expression: str) -> None:
    pattern = LinearRegex(expression + "b")
    assert not pattern.matches("a" * 30_000)
    assert pattern.matches("a" * 30_000 + "b")


def test_a_pattern_that_costs_too_much_is_refused(driver: Driver) -> None:
    """Where every character leads to places never seen before."""
    driver.producer(f"{3**9_000:b}")
    reply = driver.list(ListTransactionsRequest(transactional_id_pattern="[01]*1[01]{300}2"))
    assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
