"""Entries of the ledger, what becomes of decided transactions, and what the ledger's topic says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintmq.arrow.write.ledger import Ledger, LedgerEntry, decode_entry, encode_entry
from flintmq.arrow.write.transaction_outcomes import BatchVerdict, TransactionOutcome, judge, outcome_of
from flintmq.client.addresses import parse_addresses
from flintmq.client.admin.transactions import DescribedTransaction
from flintmq.client.cluster import ClusterClient
from flintmq.client.transaction import OpenedTransaction
from flintmq.errors import CorruptionError
from flintmq.testing import Broker

NAMED = OpenedTransaction("id", 7, 4)
OPEN, C, A, U = (
    TransactionOutcome.OPEN,
    TransactionOutcome.COMMITTED,
    TransactionOutcome.ABORTED,
    TransactionOutcome.UNKNOWN,
)


@pytest.mark.parametrize(
    ("state", "producer_id", "epoch", "fate"),
    [
        ("Ongoing", 7, 4, OPEN),
        ("Ongoing", 7, 5, U),
        ("Ongoing", 8, 4, U),
        ("PrepareCommit", 7, 5, C),
        ("CompleteCommit", 7, 5, C),
        ("CompleteCommit", 7, 4, U),
        ("CompleteCommit", 7, 6, U),
        ("PrepareAbort", 7, 5, A),
        ("CompleteAbort", 7, 5, A),
        ("CompleteAbort", 7, 7, U),
        ("Empty", 7, 5, U),
        ("CompleteCommit", 9, 0, U),
    ],
)
def test_a_transaction_is_known_by_its_producer_and_epoch(
    state: str, producer_id: int, epoch: int, fate: TransactionOutcome
) -> None:
    described = DescribedTransaction("id", state, producer_id, epoch, 1000, None, 0, ())
    assert outcome_of(NAMED, described) is fate


def test_a_transactional_id_that_nobody_knows_tells_nothing() -> None:
    assert outcome_of(NAMED, None) is U


@pytest.mark.parametrize(
    ("fates", "verdict"),
    [
        ([OPEN, OPEN], BatchVerdict.COMMIT),
        ([OPEN, C], BatchVerdict.COMMIT),
        ([C, C], BatchVerdict.COMMIT),
        ([A, A], BatchVerdict.REWRITE),
        ([OPEN, A], BatchVerdict.REWRITE),
        ([C, A], BatchVerdict.TORN),
        ([OPEN, C, A], BatchVerdict.TORN),
        ([U], BatchVerdict.TORN),
        ([OPEN, U], BatchVerdict.TORN),
        ([A, U], BatchVerdict.TORN),
    ],
)
def test_all_of_a_decision_is_carried_out_or_nothing(
    fates: list[TransactionOutcome], verdict: BatchVerdict
) -> None:
    assert judge(fates) is verdict


@pytest.mark.parametrize(
    "entry",
    [
        LedgerEntry("q", 3, "d", (NAMED, OpenedTransaction("other", 2**40, 0))),
        LedgerEntry("q", 0, "d", finished=True),
    ],
)
def test_an_entry_comes_back_as_it_was_written(entry: LedgerEntry) -> None:
    assert decode_entry("q", encode_entry(entry)) == entry


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"version":1,"batch":"x","decision":""}'])
def test_an_entry_that_makes_no_sense_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptionError, match="cannot be read"):
        decode_entry("q", value)


def test_an_entry_of_a_newer_version_says_what_to_do() -> None:
    with pytest.raises(CorruptionError, match="version 2: a newer FlintMQ wrote it"):
        decode_entry("q", b'{"version":2}')


# ---- the topic


@pytest.fixture(scope="module")
def client() -> Iterator[ClusterClient]:
    with Broker() as broker, ClusterClient(parse_addresses(broker.bootstrap_servers)) as made:
        yield made


@pytest.fixture
def ledger(client: ClusterClient, request: pytest.FixtureRequest) -> Ledger:
    return Ledger(client, request.node.name)


def test_a_ledger_that_is_not_there_yet_knows_no_query(ledger: Ledger) -> None:
    assert ledger.last("q") is None


def test_the_last_entry_of_a_query_counts(ledger: Ledger) -> None:
    ledger.write(LedgerEntry("q", 0, "a", (NAMED,)))
    ledger.write(LedgerEntry("q", 0, "a", finished=True))
    ledger.write(LedgerEntry("other", 5, "c"))
    assert ledger.last("q") == LedgerEntry("q", 0, "a", finished=True)
    assert ledger.last("nobody") is None


def test_a_query_is_found_however_much_others_have_written_since(ledger: Ledger) -> None:
    ledger.write(LedgerEntry("q", 1, "a", (NAMED,)))
    for batch in range(150):
        ledger.write(LedgerEntry("other", batch, "b"))
    assert ledger.last("q") == LedgerEntry("q", 1, "a", (NAMED,))
    assert ledger.last("other") == LedgerEntry("other", 149, "b")


def test_a_void_decision_is_told_and_a_late_one_does_not_hide_the_next(ledger: Ledger) -> None:
    first, second = LedgerEntry("q", 1, "a", (NAMED,)), LedgerEntry("q", 1, "b", (NAMED,))
    ledger.write(first)
    ledger.void(first)
    assert ledger.last("q") == first._replace(is_void=True)
    ledger.write(second)
    ledger.void(first)
    assert ledger.last("q") == second


def test_the_topic_is_compacted(ledger: Ledger, client: ClusterClient) -> None:
    from flintmq.client.admin.topics import describe_topic_settings

    ledger.write(LedgerEntry("q", 0, "a"))
    settings = describe_topic_settings(client, "test_the_topic_is_compacted")
    assert {one.name: one.value for one in settings}["cleanup.policy"] == "compact"
