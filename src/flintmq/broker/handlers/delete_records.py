"""DeleteRecords."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse


def handle(request: Request, message: DeleteRecordsRequest, services: Services) -> DeleteRecordsResponse:
    raise NotImplementedError
