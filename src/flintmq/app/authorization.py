"""The broker's authorizer: which one `authorizer.class.name` chooses, and where its ACLs come from."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import cast

from flintmq.broker.authorization import Authorization
from flintmq.effects import Executor
from flintmq.errors import ConfigurationError, ErrorCode, RequestError
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.security.audit import AuditLog
from flintmq.security.authorization.authorizer import Authorizer, StandardAuthorizer
from flintmq.security.authorization.model import AclBinding, AclFilter
from flintmq.security.authorization.stored_acls import StoredAcls
from flintmq.security.principal import parse_principal
from flintmq.settings import BrokerConfig
from flintmq.settings.broker.authorization import STANDARD_AUTHORIZER

logger = logging.getLogger(__name__)

ENTRY_POINTS = "flintmq.authorizers"
FILE_BYTES_MAX = 16 << 20

AuthorizerFactory = Callable[[Mapping[str, str]], Authorizer]
"""An entry point: takes the settings that the broker was started with."""


class AuthorizationSource:
    """Creates the authorization of a broker and keeps it up to date."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.standard: StandardAuthorizer | None = None
        self._file: AclFile | None = None

    def create(
        self,
        config: BrokerConfig,
        settings: Mapping[str, str],
        metadata: ClusterMetadata,
        denials: Counter[str],
        audit: AuditLog | None = None,
    ) -> Authorization | None:
        """Return what decides about requests; None if everything is allowed."""
        name = config.authorizer_class_name
        if not name:
            return None
        if name != STANDARD_AUTHORIZER:
            return Authorization(_load(name)(settings), metadata.image, denials, audit=audit)
        self.standard = authorizer = StandardAuthorizer(
            super_users=[
                parse_principal(one.strip()) for one in config.super_users.split(";") if one.strip()
            ],
            allow_without_acls=config.allow_everyone_if_no_acl_found,
        )
        if config.flint_acl_file:
            self._file = AclFile(os.path.abspath(config.flint_acl_file), authorizer, self._executor)
            self._file.load()
            return Authorization(authorizer, metadata.image, denials, self._file, audit)
        stored = StoredAcls(metadata, authorizer)
        return Authorization(authorizer, metadata.image, denials, stored, audit)

    def tick(self) -> None:
        """Read an ACL file again if it has changed."""
        if self._file is not None:
            self._file.check()

    def reload(self) -> None:
        """Read an ACL file again, changed or not."""
        if self._file is not None:
            self._file.check(force=True)


class AclFile:
    """ACLs that come from a file. A file that cannot be used leaves those that were read before in force."""

    def __init__(self, path: str, authorizer: StandardAuthorizer, executor: Executor) -> None:
        self._path = path
        self._authorizer = authorizer
        self._executor = executor
        self._state: tuple[int, ...] | None = None
        self._reading = False
        self._read_again = False

    def load(self) -> None:
        """Read the file at the start of the broker. Raise ConfigurationError if it cannot be used."""
        try:
            self._state, acls = _read(self._path, None)
        except OSError as error:
            raise ConfigurationError(
                f"flint.acl.file {self._path} cannot be read: {error.strerror}"
            ) from None
        self._authorizer.replace(acls or ())

    def check(self, *, force: bool = False) -> None:
        """Read the file in a thread if it has changed, or if `force` says so."""
        if self._reading:
            self._read_again |= force
            return
        self._reading = True
        known = None if force else self._state
        self._executor.submit(lambda: _read(self._path, known), self._done)

    def acls(self, selected: AclFilter) -> list[AclBinding]:
        return self._authorizer.acls(selected)

    async def create(self, acls: list[AclBinding]) -> None:
        raise self._refusal()

    async def delete(self, acls: list[AclBinding]) -> None:
        raise self._refusal()

    def _refusal(self) -> RequestError:
        return RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"The ACLs of this broker are in {self._path} (flint.acl.file): change them there.",
        )

    def _done(
        self,
        result: tuple[tuple[int, ...], list[AclBinding] | None] | None,
        error: BaseException | None,
    ) -> None:
        self._reading = False
        if error is not None:
            self._report(error)
        elif result is not None and result[1] is not None:
            self._state, acls = result
            self._authorizer.replace(acls or ())
            logger.info("read %d ACLs from %s", len(self._authorizer), self._path)
        if self._read_again:
            self._read_again = False
            self.check(force=True)

    def _report(self, error: BaseException) -> None:
        """Log what is wrong once for each state of the file, not every second."""
        state = error.state if isinstance(error, _FaultyAclFile) else _UNREADABLE
        if state != self._state:
            self._state = state
            logger.error("the ACLs stay as they were: %s", error)


_UNREADABLE = (-1,)


class _FaultyAclFile(ConfigurationError):
    def __init__(self, message: str, state: tuple[int, ...]) -> None:
        super().__init__(message)
        self.state = state
        """Of the file that has the fault."""


def _read(path: str, known: tuple[int, ...] | None) -> tuple[tuple[int, ...], list[AclBinding] | None]:
    """Return the state of the file and its ACLs; None instead of ACLs if the state is the known one."""
    from flintmq.security.authorization.acl_file import parse_acl_file  # loads YAML, which others do not need

    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        state = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
        if state == known:
            return state, None
        data = file.read(FILE_BYTES_MAX + 1)
    try:
        if len(data) > FILE_BYTES_MAX:
            raise ConfigurationError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        try:
            return state, parse_acl_file(data.decode(), path)
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise ConfigurationError(f"{path}, line {line}: not UTF-8") from None
    except ConfigurationError as error:
        raise _FaultyAclFile(str(error), state) from None


def _load(name: str) -> AuthorizerFactory:
    from importlib.metadata import entry_points  # only brokers with an authorizer of their own pay for it

    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        installed = ", ".join(sorted(found.names)) or "none"
        raise ConfigurationError(
            f"authorizer.class.name: there is no authorizer {name}. Use {STANDARD_AUTHORIZER}, or install a package "
            f"with an entry point of that name in the group {ENTRY_POINTS} (installed: {installed})."
        )
    try:
        return cast(AuthorizerFactory, found[name].load())
    except Exception as error:
        raise ConfigurationError(f"authorizer.class.name: {name} cannot be loaded: {error}") from error
