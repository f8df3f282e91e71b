"""`flintmq`, with the client id as the principal: what authentication gives, for tests of authorization alone.

    python -m support.broker.client_id_principals serve …

A client with the id `alice` is `User:alice`. Nothing of this is in the product.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path

from flintmq.app import serving
from flintmq.app.broker import Broker
from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.cli.main import main
from flintmq.protocol.header import parse_request_header
from flintmq.security.principal import USER, Principal
from flintmq.server.connection import Connection
from support.broker.broker_process import BrokerProcess

_TESTS = Path(__file__).resolve().parents[2]
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class AuthorizedBroker(BrokerProcess):
    """The test's side of it. `flintmq` itself, whose client id is its name, is a super user."""

    def __init__(self, data_dir: Path, *settings: str, env: Mapping[str, str] | None = None) -> None:
        path = [str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = (f"authorizer.class.name={STANDARD}", "super.users=User:flintmq;User:admin")
        super().__init__(
            data_dir,
            [word for one in (*own, *settings) for word in ("--set", one)],
            env={"PYTHONPATH": os.pathsep.join(path), **(env or {})},
            program="support.broker.client_id_principals",
        )


class _Identified:
    """Stands between the server and the dispatcher."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def dispatch(self, connection: Connection, frame: memoryview) -> Request | None:
        client_id = parse_request_header(frame, 0, len(frame))[3]
        if client_id and connection.session.principal.name != client_id:
            connection.session.principal = Principal(USER, client_id)
        return self._dispatcher.dispatch(connection, frame)


def _around(dispatcher: Dispatcher, services: Services) -> _Identified:
    return _Identified(dispatcher)


if __name__ == "__main__":
    setattr(serving, "Broker", functools.partial(Broker, around=_around))  # noqa: B010
    main()
