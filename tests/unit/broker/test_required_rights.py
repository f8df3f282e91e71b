"""Every API in every version: with exactly the rights of the table it succeeds, without any one of them it does not.

"Succeeds" means that the response is that of a super user. Without a right the response holds Kafka's error code, or
lacks what the right protects, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.broker.apis import APIS, BY_KEY
from flintmq.broker.required_rights import REQUIRED_RIGHTS, RequiredRight
from flintmq.broker.responses import error_codes_in
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    CreateDelegationTokenResponse,
    DescribeClusterResponse,
    DescribeTopicPartitionsResponse,
    MetadataResponse,
)
from flintmq.security.authorization.model import AUTHORIZATION_ERRORS
from flintmq.security.principal import Principal
from support.broker.single_broker import SingleBroker
from support.wire.authorized_requests import ADMIN, Stage
from support.wire.requests_by_api import CASES, Case

StartBroker = Callable[..., SingleBroker]

ALICE = Principal("User", "alice")
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": str(ADMIN),
    # Each request has a broker of its own, and most of its start is these partitions.
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


def versions_of(case: Case) -> range:
    lowest, highest = BY_KEY[case.key].versions
    return range(max(lowest, case.versions[0]), min(highest, case.versions[1]) + 1)


EVERY = [
    pytest.param(case, version, id=f"{BY_KEY[case.key].name}-{case.name}-v{version}")
    for case in CASES
    for version in versions_of(case)
]


def test_every_api_has_its_rights_in_the_table() -> None:
    assert {api.key for api in APIS} <= set(REQUIRED_RIGHTS)


def test_every_right_of_the_table_is_tried() -> None:
    tried = {(case.key, at) for case in CASES for at in case.rights}
    declared = {(api.key, at) for api in APIS for at in range(len(REQUIRED_RIGHTS[api.key]))}
    assert tried == declared
    assert {case.key for case in CASES} == {api.key for api in APIS}


def normal(response: Message) -> Message:
    """The response with authorized operations as yes or no, and without internal topics: admins have more."""
    if isinstance(response, DescribeClusterResponse | MetadataResponse):
        response.cluster_authorized_operations = int(response.cluster_authorized_operations != 0)
    if isinstance(response, MetadataResponse | DescribeTopicPartitionsResponse):
        response.topics = [topic for topic in response.topics if not (topic.name or "").startswith("__")]  # type: ignore[assignment]
    if isinstance(response, DescribeTopicPartitionsResponse):
        for topic in response.topics:
            topic.topic_authorized_operations = 0
    if isinstance(response, CreateDelegationTokenResponse):
        response.token_requester_principal_name = ""
        if response.principal_name in ("admin", "alice"):
            response.principal_name = ""
    return response


def respond(
    start: StartBroker,
    case: Case,
    version: int,
    rights: list[RequiredRight],
    principal: Principal = ALICE,
) -> tuple[Message, bool]:
    """The response on a broker of its own to a client with these rights, and whether anything has changed."""
    stage = Stage(start({**SETTINGS, **dict(case.settings)}))
    case.prepare(stage)
    authorizer = stage.broker.authorization.standard
    assert authorizer is not None
    authorizer.change(added=[case.acl(right, principal) for right in rights])
    before = stage.digest()
    response = normal(stage.ask(case.build(stage, version), version, principal))
    return response, stage.digest() != before


@pytest.mark.parametrize(("case", "version"), EVERY)
def test_the_rights_of_the_table_are_needed_and_enough(
    start_broker: StartBroker, case: Case, version: int
) -> None:
    needed = case.needed(version)
    expected, _ = respond(start_broker, case, version, [], ADMIN)
    assert not set(error_codes_in(expected)) & set(AUTHORIZATION_ERRORS.values())
    assert respond(start_broker, case, version, needed)[0] == expected
    for right in needed:
        others = [one for one in needed if one is not right]
        response, has_changed = respond(start_broker, case, version, others)
        assert response != expected, right
        codes = set(error_codes_in(response))
        if right.is_hidden:
            assert not codes & set(AUTHORIZATION_ERRORS.values()), right
        else:
            # Where there are other rights, some parts of a response may have errors of theirs.
            assert right.error_code in codes, right
            assert not has_changed, right
        for other in right.alternatives:
            assert respond(start_broker, case, version, [*others, other])[0] == expected, other


@pytest.mark.parametrize(("case", "version"), EVERY)
def test_a_client_without_any_right_changes_nothing(
    start_broker: StartBroker, case: Case, version: int
) -> None:
    _, has_changed = respond(start_broker, case, version, [])
    assert not has_changed or not case.rights
