"""An authorizer: everyone reads, and the principals of the environment variable READ_MOSTLY_WRITERS do all else."""

from __future__ import annotations

import os
from collections.abc import Mapping

from flintmq.security.authorization.model import EVERY_OPERATION, AclOperation, AclResource, operation_bits
from flintmq.security.principal import Principal

READING = operation_bits((AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS))


class ReadMostly:
    def __init__(self, writers: frozenset[str]) -> None:
        self.generation = 0
        self._writers = writers

    def operations(self, principal: Principal, host: str, resource: AclResource, name: str) -> int:
        return EVERY_OPERATION if str(principal) in self._writers else READING

    def allows_somewhere(
        self, principal: Principal, host: str, resource: AclResource, operation: AclOperation
    ) -> bool:
        return bool(self.operations(principal, host, resource, "") >> operation & 1)


def create(settings: Mapping[str, str]) -> ReadMostly:
    writers = os.environ.get("READ_MOSTLY_WRITERS", "")
    return ReadMostly(frozenset(filter(None, writers.split(";"))))
