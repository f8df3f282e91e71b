"""Dynamic settings of brokers over the wire (KIP-226, KIP-339)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import check
from flintmq.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

_BROKER_RESOURCE = 4
_SET, _DELETE = 0, 1


def broker_ids(client: ClusterClient) -> list[int]:
    client.attempt(lambda: client.refresh([]))
    return sorted(client.metadata.brokers)


def alter_broker(
    client: ClusterClient,
    node_id: int,
    *,
    settings: Mapping[str, str],
    resets: Iterable[str] = (),
    validate_only: bool = False,
) -> None:
    """Change some dynamic settings of a broker and remove others, all or none; the broker itself is asked, once."""
    changes = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=_SET, value=value)
        for name, value in settings.items()
    ]
    changes += [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=_DELETE, value=None)
        for name in resets
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(node_id), configs=changes
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)

    def ask() -> None:
        response = client.broker(node_id).call(
            request, IncrementalAlterConfigsResponse, client.request_timeout_s
        )
        for one in response.responses:
            check(one.error_code, one.error_message)

    client.attempt(ask, repeatable=False)
