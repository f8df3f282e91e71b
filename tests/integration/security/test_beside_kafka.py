"""The same requests as the same principal get the same responses from Apache Kafka and from FlintMQ.

Every API that clients use, in the oldest and the newest version that both have. What differs is in `KNOWN` with its
reason, and in `docs/compatibility.md`. With `-s` the test writes its report, which is kept in `docs/runs/`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from flintmq.broker.apis import BY_KEY
from flintmq.protocol import messages as m
from flintmq.security.authorization.model import AclBinding
from support.broker.kafka_process import SecuredKafka
from support.broker.secured import secured_broker
from support.differential.acl_sets import ACL_SETS, OPERATIONS_CASES
from support.differential.normal import differences, normal
from support.differential.rehearsal import CLIENT, RemoteBroker, RemoteStage
from support.wire.requests_by_api import CASES, Case

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FIRST_OWN_API = 15000


TEXTS = "texts are FlintMQ's own; they name the right that is missing"


@dataclass(frozen=True)
class KnownDifference:
    run: str
    """A regular expression for the whole of "API case, ACLs"."""
    path: str
    """One for the whole path in the response."""
    reason: str


KNOWN = (
    KnownDifference(
        "Fetch replica, CLUSTER_ACTION on CLUSTER",
        ".*",
        "there are no replicas: Kafka refuses a replica that it does not know",
    ),
    KnownDifference(
        "Metadata creating, DESCRIBE on TOPIC, CREATE on TOPIC",
        ".*",
        "the first response has the new topic already",
    ),
    KnownDifference(
        "AlterConfigs broker, ALTER_CONFIGS on CLUSTER",
        ".*error_(code|message)",
        "Kafka refuses to remove min.insync.replicas under ELR",
    ),
)


@dataclass(frozen=True)
class Run:
    case: Case
    version: int
    acls: tuple[AclBinding, ...]
    label: str

    @property
    def title(self) -> str:
        return f"{BY_KEY[self.case.key].name} {self.case.name}".strip()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RemoteBroker, RemoteBroker]]:
    """Kafka, then FlintMQ."""
    directory = tmp_path_factory.mktemp("beside")
    settings = (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:admin",
        "sasl.enabled.mechanisms=PLAIN",
    )
    with SecuredKafka(directory / "kafka") as kafka, secured_broker(directory / "data", *settings) as ours:
        both = RemoteBroker(kafka.address), RemoteBroker(ours.address)
        yield both
        for one in both:
            one.close()


def runs(versions: dict[int, range]) -> Iterator[Run]:
    for case in CASES:
        # Settings of the broker are FlintMQ's own here.
        if case.key >= FIRST_OWN_API or case.key not in versions or case.settings:
            continue
        for version in oldest_and_newest(case, versions[case.key]):
            needed = [case.acl(right, CLIENT) for right in case.needed(version)]
            chosen = {(), *((acl,) for acl in needed), tuple(needed)}
            for acls in sorted(chosen, key=repr):
                yield Run(case, version, acls, ", ".join(map(shown, acls)) or "no right")
    for case in OPERATIONS_CASES:
        for version in oldest_and_newest(case, versions[case.key]):
            for label, acls in ACL_SETS.items():
                yield Run(case, version, acls, label)


def oldest_and_newest(case: Case, both: range) -> list[int]:
    # Produce is announced from version 0 on, for old clients, and understood from 3 on.
    lowest = max(both[0], case.versions[0], m.request_of(case.key).versions[0])
    return sorted({lowest, min(both[-1], case.versions[1])})


def shown(acl: AclBinding) -> str:
    return f"{acl.operation.name} on {acl.resource.name}"


def perform(broker: RemoteBroker, run: Run) -> dict[str, Any]:
    stage = RemoteStage(broker)
    try:
        stage.prepare(run.case)
        stage.permit(list(run.acls))
        request = run.case.build(stage, run.version)
        try:
            response = broker.ask(request, m.response_of(run.case.key), run.version, principal=CLIENT)
        except EOFError:
            return {"connection": "closed"}
        return {"response": normal(response)}
    finally:
        stage.withdraw([str(CLIENT), "User:bob"])


def reason_for(run: Run, path: str, found: object) -> str | None:
    if path.endswith("error_message") and found:
        return TEXTS
    for one in KNOWN:
        if re.fullmatch(one.run, f"{run.title}, {run.label}") and re.fullmatch(one.path, path):
            return one.reason
    return None


def test_the_same_requests_get_the_same_responses(brokers: tuple[RemoteBroker, RemoteBroker]) -> None:
    kafka, ours = brokers
    of_kafka, of_flintmq = kafka.versions(), ours.versions()
    both = {
        key: range(max(of_kafka[key][0], of_flintmq[key][0]), min(of_kafka[key][-1], of_flintmq[key][-1]) + 1)
        for key in of_kafka
        if key in of_flintmq
    }
    count, unknown, known = 0, [], Counter[tuple[str, str]]()
    for run in runs(both):
        count += 1
        expected, found = perform(kafka, run), perform(ours, run)
        if expected.keys() != found.keys():
            unknown.append(f"{run.title} v{run.version} with {run.label}: Kafka {expected}, FlintMQ {found}")
            continue
        for path, kafkas, flintmqs in differences(expected, found):
            reason = reason_for(run, path, flintmqs)
            if reason is None:
                unknown.append(
                    f"{run.title} v{run.version} with {run.label}: {path}: Kafka {kafkas!r}, FlintMQ {flintmqs!r}"
                )
            else:
                known[run.title, reason] += 1
    apis = sorted({run.title.split()[0] for run in runs(both)})
    print(f"\n{count} requests at Apache Kafka 4.3.1 and at FlintMQ, {len(apis)} APIs: {', '.join(apis)}")
    print("APIs of Kafka alone: " + ", ".join(map(str, sorted(set(of_kafka) - set(of_flintmq)))))
    for (title, reason), times in sorted(known.items()):
        print(f"known: {title}: {times} times: {reason}")
    print(f"{len(unknown)} unknown differences")
    assert not unknown, "\n".join(unknown)
    unseen = {one.reason for one in KNOWN} - {reason for _, reason in known}
    assert not unseen, f"no longer differences: {unseen}"
