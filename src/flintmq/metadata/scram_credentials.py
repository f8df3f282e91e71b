"""SCRAM credentials in the metadata store: described and changed by Kafka's rules (KIP-554).

A credential holds keys that verify a password and cannot be used in its place; the password is never here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.image import ClusterImage
from flintmq.metadata.store import Put
from flintmq.protocol.scram import (
    BY_TYPE,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of,
)

ALTERATIONS_MAX = 1000
"""Credentials of one request."""
NAME_SIZE_MAX = 4096
SALT_SIZE_MAX = 1024
SALTED_PASSWORD_SIZE_MAX = 1024
_WRITES_PER_TXN = 32


class ScramDeletion(NamedTuple):
    user: str
    mechanism: int
    """Kafka's number, as a client sends it."""


class ScramUpsertion(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramDescription(NamedTuple):
    user: str
    iterations: list[tuple[ScramMechanism, int]]


class ScramCredentials:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    def describe(self, users: Sequence[str] | None) -> list[ScramDescription | tuple[str, RequestError]]:
        """Describe these users, or all for None or none."""
        image = self._metadata.image
        if not users:
            names = sorted({user for known in image.scram.values() for user in known})
            return [ScramDescription(user, _iterations(image, user)) for user in names]
        results: list[ScramDescription | tuple[str, RequestError]] = []
        for user, count in Counter(users).items():
            found = _iterations(image, user)
            if count > 1:
                text = (
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
                )
                results.append((user, RequestError(ErrorCode.DUPLICATE_RESOURCE, text)))
            elif not found:
                text = f"Attempt to describe a user credential that does not exist: {user}"
                results.append((user, RequestError(ErrorCode.RESOURCE_NOT_FOUND, text)))
            else:
                results.append(ScramDescription(user, found))
        return results

    async def alter(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> dict[str, RequestError | None]:
        """Change credentials; return the error of each user, None where it succeeded."""
        changes: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
        if len(changes) > ALTERATIONS_MAX:
            too_many = RequestError(
                ErrorCode.INVALID_REQUEST,
                f"One request changes up to {ALTERATIONS_MAX} credentials; send several.",
            )
            return dict.fromkeys((change.user for change in changes), too_many)
        results: dict[str, RequestError | None] = {}
        writes: dict[str, dict[str, Put | None]] = {}
        for change in changes:
            try:
                if change.user in results:
                    writes.pop(change.user, None)
                    raise RequestError(
                        ErrorCode.DUPLICATE_RESOURCE,
                        "A user credential cannot be altered twice in the same request",
                    )
                writes[change.user] = self._write(change)
                results[change.user] = None
            except RequestError as error:
                # Kafka keeps the first error of a user.
                results[change.user] = results.get(change.user) or error
        merged = {key: put for write in writes.values() for key, put in write.items()}
        left = iter(merged.items())
        while some := dict(islice(left, _WRITES_PER_TXN)):
            await self._metadata.write(some)
        return results

    def _write(self, change: ScramDeletion | ScramUpsertion) -> dict[str, Put | None]:
        mechanism = BY_TYPE.get(change.mechanism)
        if not change.user:
            raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if len(change.user) > NAME_SIZE_MAX:
            raise RequestError(
                ErrorCode.UNACCEPTABLE_CREDENTIAL,
                f"Username must not be longer than {NAME_SIZE_MAX} characters",
            )
        if mechanism is None:
            raise RequestError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        key = keys.scram(mechanism.value, change.user)
        if isinstance(change, ScramDeletion):
            if change.user not in self._metadata.image.scram.get(mechanism.value, {}):
                raise RequestError(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
            return {key: None}
        return {key: Put(encode_credential(_credential(mechanism, change)))}


def encode_credential(credential: ScramCredential) -> bytes:
    return keys.encode(keys.ScramValue(*credential))


def _credential(mechanism: ScramMechanism, change: ScramUpsertion) -> ScramCredential:
    if change.iterations < ITERATIONS_MIN:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len(change.salt) > SALT_SIZE_MAX or len(change.salted_password) > SALTED_PASSWORD_SIZE_MAX:
        raise RequestError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Salt and salted password must not be longer than {SALT_SIZE_MAX} bytes",
        )
    return credential_of(
        mechanism, bytes(change.salted_password), salt=bytes(change.salt), iterations=change.iterations
    )


def _iterations(image: ClusterImage, user: str) -> list[tuple[ScramMechanism, int]]:
    return [
        (mechanism, known[user].iterations)
        for mechanism in ScramMechanism
        if user in (known := image.scram.get(mechanism.value, {}))
    ]
