"""What requests about delegation tokens have in common: which connections may send them (KIP-48)."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, RequestError
from flintmq.security.principal import ANONYMOUS

NO_TIME = -1


def check_connection(request: Request) -> None:
    """Raise RequestError on connections that may not handle tokens.

    The HMAC of a token is a password, and a token must not lead to other tokens that outlive it: the client has
    authenticated, and not with a token.
    """
    session = request.session
    protocol = session.security_protocol
    is_one_way = protocol == "SSL" and session.principal == ANONYMOUS
    if session.token_authenticated or protocol == "PLAINTEXT" or is_one_way:
        raise RequestError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "Delegation tokens need a connection that is authenticated, and not by a token.",
        )
