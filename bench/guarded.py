"""FlintMQ with ACLs and quotas in force that never deny or throttle: what looking at them costs.

The client has its rights from ACLs, not as a super user, and quotas far above what a machine can do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from bench.loads import refuse
from bench.peers import BrokerHome, FlintPeer
from bench.wire import Connection
from flintmq.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse

_PLENTY: Final = 1e15
_QUOTAS: Final = {
    "producer_byte_rate": _PLENTY,
    "consumer_byte_rate": _PLENTY,
    "request_percentage": 1e6,
    "controller_mutation_rate": 1e6,
}
_ALTER_QUOTAS_VERSION: Final = 1
_RIGHTS: Final = """\
  - {principal: User:ANONYMOUS, allow: All, topic: bench-, pattern: prefixed}
  - {principal: User:ANONYMOUS, allow: All, group: "*"}
  - {principal: User:ANONYMOUS, allow: All, transactional-id: "*"}
  - {principal: User:ANONYMOUS, allow: All, cluster: true}
"""


class GuardedPeer(FlintPeer):
    def __init__(self, package: str | None, *, acls: int, quotas: bool) -> None:
        super().__init__(package)
        self._acls = acls
        self._quotas = quotas

    def prepare(self, home: BrokerHome) -> None:
        super().prepare(home)
        if self._acls:
            with open(_acl_file(home), "w") as file:
                file.write("acls:\n" + _RIGHTS)
                # Half of them by prefixes, and some of prefixes that the topics of the workloads have too.
                for number in range(self._acls - _RIGHTS.count("\n")):
                    pattern = "prefixed" if number % 2 else "literal"
                    name = f"bench-{number}" if number % 10 == 0 else f"team-{number % 100}.topic-{number}"
                    principal = f"User:user-{number % 500}"
                    file.write(
                        f"  - {{principal: {principal}, allow: Read, topic: {name}, pattern: {pattern}}}\n"
                    )

    def command(self, home: BrokerHome) -> Sequence[str]:
        command = super().command(home)
        if not self._acls:
            return command
        authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        return [*command, "--set", authorizer, "--set", f"flint.acl.file={_acl_file(home)}"]

    def configure(self, connection: Connection) -> None:
        if not self._quotas:
            return
        entity = [
            AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=None),
            AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=None),
        ]
        operations = [AlterClientQuotasRequest.OpData(key=key, value=value) for key, value in _QUOTAS.items()]
        request = AlterClientQuotasRequest(
            entries=[AlterClientQuotasRequest.EntryData(entity=entity, ops=operations)]
        )
        for one in connection.call(request, AlterClientQuotasResponse, _ALTER_QUOTAS_VERSION).entries:
            refuse(one.error_code, one.error_message)


def _acl_file(home: BrokerHome) -> str:
    return os.path.join(home.folder, "acls.yaml")
