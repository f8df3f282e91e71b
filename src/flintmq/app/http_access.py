"""Who may read the pages of the HTTP port: the authenticators and the authorizer that Kafka's clients have, too.

Health is open to everyone. Every other page needs Describe on the cluster, where there is an authorizer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from flintmq.broker.authorization import Authorization
from flintmq.broker.request import ClientSession
from flintmq.http.request import HttpRequest, Page, plain_page
from flintmq.http.server import HttpPeer
from flintmq.security.audit import AuditLog
from flintmq.security.authentication.authenticator import SaslAuthenticator
from flintmq.security.authentication.hashing import TOO_MANY
from flintmq.security.authentication.http_credentials import judge_basic, judge_bearer
from flintmq.security.authentication.mechanism import SaslFailure, SaslStep, SaslUnavailable
from flintmq.security.authorization.model import CLUSTER_NAME, AclOperation, AclResource
from flintmq.security.certificate import read_certificate
from flintmq.security.principal import USER, Principal
from flintmq.security.principal_mapping import PrincipalMapping
from flintmq.settings import BrokerConfig
from flintmq.settings.broker.rest import BASIC, BEARER, CERTIFICATE
from flintmq.settings.rest import REST_LISTENER

logger = logging.getLogger(__name__)

MECHANISM: Final = "HTTP"
OPEN_PAGES: Final = frozenset(("/health", "/health/live", "/health/ready"))
_CHALLENGES: Final = {BASIC: 'Basic realm="FlintMQ", charset="UTF-8"', BEARER: 'Bearer realm="FlintMQ"'}
_UNAUTHENTICATED: Final = "valid credentials are needed; see flint.rest.authentication in docs/security.md"


class HttpAccess:
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        sasl: SaslAuthenticator,
        authorization: Authorization | None,
        mapping: Callable[[], PrincipalMapping | None],
        audit: AuditLog | None,
    ) -> None:
        """`mapping` returns the rules for the names of client certificates."""
        self._config = config
        self._sasl = sasl
        self._authorization = authorization
        self._mapping = mapping
        self._audit = audit

    async def admit(self, request: HttpRequest, peer: HttpPeer) -> Page | None:
        """Return None if the page may be read, else what is answered instead."""
        session = ClientSession(listener=REST_LISTENER, peer=peer.host, local_host="", local_port=0)
        api = f"{request.method} {request.path}"[:100]
        if self._config().flint_rest_authentication:
            try:
                found = await self._authenticate(request, peer)
            except SaslFailure as failure:
                return self._fail(session, api, str(failure))
            except SaslUnavailable as unavailable:
                return plain_page(503, str(unavailable), ("Retry-After", "1"))
            if found is None:
                return self._challenge()
            session.principal = found
            self._sasl.counters.succeeded[MECHANISM] += 1
            if self._audit is not None:
                self._audit.authentication(session, api=api, mechanism=MECHANISM)
        return self._authorize(session, api)

    def _authorize(self, session: ClientSession, api: str) -> Page | None:
        authorization = self._authorization
        if authorization is None or self._config().flint_rest_allow_unauthenticated:
            return None
        if authorization.allows(session, AclOperation.DESCRIBE, AclResource.CLUSTER, CLUSTER_NAME, api):
            return None
        return plain_page(403, f"{session.principal} needs an ACL that allows DESCRIBE on the cluster")

    async def _authenticate(self, request: HttpRequest, peer: HttpPeer) -> Principal | None:
        """Return who the client is; None if it does not say. SaslFailure if that is not true."""
        methods = self._config().flint_rest_authentication
        if request.authorization is None:
            if CERTIFICATE in methods and peer.certificate is not None:
                return self._certificate_principal(peer.certificate)
            return None
        scheme, _, credentials = request.authorization.partition(" ")
        scheme = scheme.lower()
        if scheme not in methods or scheme not in _CHALLENGES:
            raise SaslFailure(f"an HTTP request with the scheme {scheme[:20]!r}, which is not enabled")
        judge = judge_basic if scheme == BASIC else judge_bearer
        step = await self._judged(judge(self._sasl, REST_LISTENER, credentials.strip()), peer.host)
        assert step.identity is not None
        return step.identity.principal

    async def _judged(self, work: Callable[[], SaslStep], host: str) -> SaslStep:
        """Run the work in the queue that SASL has."""
        done: asyncio.Future[SaslStep] = asyncio.get_running_loop().create_future()

        def finished(step: SaslStep | None, error: BaseException | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                assert step is not None
                done.set_result(step)

        if not self._sasl.hashing.submit(work, finished, host):
            raise SaslUnavailable(TOO_MANY)
        return await done

    def _certificate_principal(self, certificate: bytes) -> Principal:
        mapping = self._mapping()
        try:
            subject = read_certificate(certificate).subject
        except ValueError as error:
            raise SaslFailure(f"a client certificate that cannot be read: {error}") from None
        name = mapping.name_of(subject) if mapping is not None else None
        if name is None:
            raise SaslFailure(f"no rule of ssl.principal.mapping.rules matches {subject!r}")
        return Principal(USER, name)

    def _fail(self, session: ClientSession, api: str, reason: str) -> Page:
        self._sasl.counters.failed[MECHANISM] += 1
        logger.warning("an HTTP request of %s was not authenticated: %s", session.peer_host, reason[:200])
        if self._audit is not None:
            self._audit.authentication(session, api=api, mechanism=MECHANISM, failure=reason)
        return replace(self._challenge(), delay_s=self._sasl.failure_delay_s)

    def _challenge(self) -> Page:
        """The same whether credentials are missing or wrong."""
        methods = self._config().flint_rest_authentication
        challenges = [("WWW-Authenticate", _CHALLENGES[one]) for one in methods if one in _CHALLENGES]
        return plain_page(401, _UNAUTHENTICATED, *challenges)
