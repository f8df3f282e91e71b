"""The rights that each API needs, as Apache Kafka 4.3 has them: one table, next to the list of APIs.

The documentation is generated from it, and a test sends every API in every version with exactly these rights, and
without each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flintmq.errors import ErrorCode
from flintmq.security.authorization.model import AUTHORIZATION_ERRORS, AclOperation, AclResource

_O = AclOperation


@dataclass(frozen=True, slots=True)
class RequiredRight:
    operation: AclOperation
    resource: AclResource
    when: str = ""
    """The case in which the right is needed, in words; empty for always."""
    versions: tuple[int, int] | None = None
    """The versions that need it; None for all."""
    is_hidden: bool = False
    """Without the right there is no error: what it protects is left out of the response."""
    error: ErrorCode = ErrorCode.NONE
    """The error code without the right, where it is not that of the resource's type."""
    alternatives: tuple[RequiredRight, ...] = ()
    """Rights each of which does as well."""

    @property
    def error_code(self) -> ErrorCode:
        return self.error or AUTHORIZATION_ERRORS[self.resource]

    def or_else(self, *others: RequiredRight) -> RequiredRight:
        return replace(self, alternatives=others)


def _topic(
    operation: AclOperation,
    when: str = "",
    *,
    versions: tuple[int, int] | None = None,
    is_hidden: bool = False,
) -> RequiredRight:
    return RequiredRight(operation, AclResource.TOPIC, when, versions, is_hidden)


def _group(operation: AclOperation, when: str = "", *, is_hidden: bool = False) -> RequiredRight:
    return RequiredRight(operation, AclResource.GROUP, when, None, is_hidden)


def _cluster(
    operation: AclOperation,
    when: str = "",
    *,
    versions: tuple[int, int] | None = None,
    is_hidden: bool = False,
    error: ErrorCode = ErrorCode.NONE,
) -> RequiredRight:
    return RequiredRight(operation, AclResource.CLUSTER, when, versions, is_hidden, error)


def _transaction(
    operation: AclOperation,
    when: str = "",
    *,
    versions: tuple[int, int] | None = None,
    is_hidden: bool = False,
) -> RequiredRight:
    return RequiredRight(operation, AclResource.TRANSACTIONAL_ID, when, versions, is_hidden)


_CREATE = _topic(_O.CREATE).or_else(_cluster(_O.CREATE))
_CREATE_IF_MISSING = replace(_CREATE, when="the topic does not exist and is to be created")
_OPERATIONS_OF_CLUSTER = _cluster(
    _O.DESCRIBE, "the authorized operations of the cluster are requested", is_hidden=True
)

REQUIRED_RIGHTS: dict[int, tuple[RequiredRight, ...]] = {
    0: (  # Produce
        _topic(_O.WRITE),
        _transaction(_O.WRITE, "a batch is transactional"),
        replace(_CREATE_IF_MISSING, when="`flint.auto.create.topics.on.produce` creates the topic"),
    ),
    1: (  # Fetch
        _topic(_O.READ, "a consumer fetches"),
        _cluster(_O.CLUSTER_ACTION, "a replica fetches", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ),
    2: (_topic(_O.DESCRIBE),),  # ListOffsets
    3: (  # Metadata
        _topic(_O.DESCRIBE, "the topic is named"),
        _topic(_O.DESCRIBE, "all topics are requested", is_hidden=True),
        _CREATE_IF_MISSING,
        replace(_OPERATIONS_OF_CLUSTER, versions=(8, 10)),
    ),
    8: (_group(_O.READ), _topic(_O.READ)),  # OffsetCommit
    9: (  # OffsetFetch
        _group(_O.DESCRIBE),
        _topic(_O.DESCRIBE, "the topic is named"),
        _topic(_O.DESCRIBE, "all topics are requested", is_hidden=True),
    ),
    10: (  # FindCoordinator
        _group(_O.DESCRIBE, "the key is a group"),
        _transaction(_O.DESCRIBE, "the key is a transactional id"),
    ),
    11: (_group(_O.READ),),  # JoinGroup
    12: (_group(_O.READ),),  # Heartbeat
    13: (_group(_O.READ),),  # LeaveGroup
    14: (_group(_O.READ),),  # SyncGroup
    15: (_group(_O.DESCRIBE),),  # DescribeGroups
    16: (_group(_O.DESCRIBE, is_hidden=True).or_else(_cluster(_O.DESCRIBE)),),  # ListGroups
    17: (),  # SaslHandshake
    18: (),  # ApiVersions
    19: (  # CreateTopics
        _CREATE,
        _topic(
            _O.DESCRIBE_CONFIGS, "the response holds partitions and configs", versions=(5, 7), is_hidden=True
        ),
    ),
    20: (  # DeleteTopics
        _topic(_O.DELETE).or_else(_cluster(_O.DELETE)),
    ),
    21: (_topic(_O.DELETE),),  # DeleteRecords
    22: (  # InitProducerId
        _transaction(_O.WRITE, "with a transactional id"),
        _cluster(_O.IDEMPOTENT_WRITE, "without a transactional id").or_else(
            _topic(_O.WRITE, "any topic will do")
        ),
    ),
    23: (_topic(_O.DESCRIBE).or_else(_cluster(_O.CLUSTER_ACTION)),),  # OffsetForLeaderEpoch
    24: (  # AddPartitionsToTxn
        _transaction(_O.WRITE, versions=(0, 3)),
        _topic(_O.WRITE, versions=(0, 3)),
        _cluster(_O.CLUSTER_ACTION, versions=(4, 5)),
    ),
    25: (_transaction(_O.WRITE), _group(_O.READ)),  # AddOffsetsToTxn
    26: (_transaction(_O.WRITE),),  # EndTxn
    27: (_cluster(_O.CLUSTER_ACTION).or_else(_cluster(_O.ALTER)),),  # WriteTxnMarkers
    28: (_transaction(_O.WRITE), _group(_O.READ), _topic(_O.READ)),  # TxnOffsetCommit
    29: (_cluster(_O.DESCRIBE),),  # DescribeAcls
    30: (_cluster(_O.ALTER),),  # CreateAcls
    31: (_cluster(_O.ALTER),),  # DeleteAcls
    32: (  # DescribeConfigs
        _topic(_O.DESCRIBE_CONFIGS, "of topics"),
        _cluster(_O.DESCRIBE_CONFIGS, "of brokers and loggers"),
    ),
    33: (  # AlterConfigs
        _topic(_O.ALTER_CONFIGS, "of topics"),
        _cluster(_O.ALTER_CONFIGS, "of brokers"),
    ),
    34: (_cluster(_O.ALTER),),  # AlterReplicaLogDirs
    35: (  # DescribeLogDirs
        _cluster(_O.DESCRIBE, versions=(3, 5)),
        _cluster(_O.DESCRIBE, versions=(1, 2), is_hidden=True),
    ),
    36: (),  # SaslAuthenticate
    37: (_topic(_O.ALTER),),  # CreatePartitions
    38: (RequiredRight(_O.CREATE_TOKENS, AclResource.USER, "for another owner"),),  # CreateDelegationToken
    39: (),  # RenewDelegationToken: owner and renewers may
    40: (),  # ExpireDelegationToken: owner and renewers may
    41: (  # DescribeDelegationToken
        RequiredRight(_O.DESCRIBE, AclResource.DELEGATION_TOKEN, "of others", is_hidden=True).or_else(
            RequiredRight(_O.DESCRIBE_TOKENS, AclResource.USER)
        ),
    ),
    42: (_group(_O.DELETE),),  # DeleteGroups
    43: (_cluster(_O.ALTER),),  # ElectLeaders
    44: (  # IncrementalAlterConfigs
        _topic(_O.ALTER_CONFIGS, "of topics"),
        _cluster(_O.ALTER_CONFIGS, "of brokers and loggers"),
    ),
    45: (_cluster(_O.ALTER),),  # AlterPartitionReassignments
    46: (_cluster(_O.DESCRIBE),),  # ListPartitionReassignments
    47: (_group(_O.DELETE), _topic(_O.READ)),  # OffsetDelete
    48: (_cluster(_O.DESCRIBE_CONFIGS),),  # DescribeClientQuotas
    49: (_cluster(_O.ALTER_CONFIGS),),  # AlterClientQuotas
    50: (_cluster(_O.DESCRIBE),),  # DescribeUserScramCredentials
    51: (_cluster(_O.ALTER),),  # AlterUserScramCredentials
    55: (_cluster(_O.DESCRIBE),),  # DescribeQuorum
    57: (_cluster(_O.ALTER),),  # UpdateFeatures
    60: (_OPERATIONS_OF_CLUSTER,),  # DescribeCluster
    61: (_topic(_O.READ),),  # DescribeProducers
    65: (  # DescribeTransactions
        _transaction(_O.DESCRIBE),
        _topic(_O.DESCRIBE, "for each topic of the transaction", is_hidden=True),
    ),
    66: (_transaction(_O.DESCRIBE, is_hidden=True),),  # ListTransactions
    74: (_cluster(_O.DESCRIBE_CONFIGS),),  # ListConfigResources
    75: (  # DescribeTopicPartitions
        _topic(_O.DESCRIBE, "the topic is named"),
        _topic(_O.DESCRIBE, "all topics are requested", is_hidden=True),
    ),
    15000: (_topic(_O.ALTER),),  # MaintainTopic
    15001: (_topic(_O.DESCRIBE),),  # DescribeTopicTask
    15002: (_topic(_O.DESCRIBE),),  # DescribeTopicHealth
    15003: (_transaction(_O.WRITE).or_else(_cluster(_O.ALTER)),),  # AbortTransaction
    15004: (_topic(_O.READ),),  # DescribeSegments
}
