"""ApiVersions: what is kept of the software that a client names (KIP-511)."""

from __future__ import annotations

from flintmq.broker.handlers.cluster.api_versions import SOFTWARE_SIZE_MAX
from flintmq.broker.request import ClientSession
from flintmq.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from support.broker.single_broker import SingleBroker


def test_a_long_name_of_the_software_is_cut(broker: SingleBroker) -> None:
    """A client that is not authenticated may send 60 KB, which would be kept with each connection."""
    session = ClientSession(listener="PLAINTEXT", peer="client:1", local_host="127.0.0.1", local_port=9092)
    request = ApiVersionsRequest(client_software_name="n" * 30_000, client_software_version="1" * 30_000)
    response = broker.loop.run_until_complete(
        broker.exchange(request, ApiVersionsResponse, 3, session=session)
    )
    assert response.error_code == 0
    assert session.client_software == ("n" * SOFTWARE_SIZE_MAX, "1" * SOFTWARE_SIZE_MAX)
