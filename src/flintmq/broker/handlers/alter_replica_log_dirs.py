"""AlterReplicaLogDirs."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse


def handle(request: Request, message: AlterReplicaLogDirsRequest, services: Services) -> AlterReplicaLogDirsResponse:
    raise NotImplementedError
