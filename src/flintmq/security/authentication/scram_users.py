"""SCRAM credentials: those of the metadata store, and invented ones for users that do not exist.

An invented credential depends on the user's name and on a secret of the cluster, so that it is the same after a
restart; it looks like most of the real ones. Nobody can tell from it whether the user exists.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Mapping

from flintmq.protocol.scram import ITERATIONS_MIN, ScramCredential, ScramMechanism

Credentials = Mapping[str, Mapping[str, ScramCredential]]
"""By mechanism and user, as the metadata image has them."""

SALT_BYTES = 24


class ScramUsers:
    def __init__(self, credentials: Callable[[], Credentials], secret: bytes) -> None:
        self._credentials = credentials
        self._secret = secret
        self._usual: dict[ScramMechanism, tuple[int, int]] = {}

    def changed(self) -> None:
        """Credentials were added, changed or removed."""
        self._usual.clear()

    def find(self, mechanism: ScramMechanism, username: str) -> tuple[ScramCredential, bool]:
        # ORDER: both are looked up whatever the user, so that it takes the same time.
        invented = self._invent(mechanism, username)
        known = self._credentials().get(mechanism.value, {}).get(username)
        return (invented, False) if known is None else (known, True)

    def _invent(self, mechanism: ScramMechanism, username: str) -> ScramCredential:
        iterations, salt_size = self._usual_shape(mechanism)
        seed = f"{mechanism.value}\0{username}".encode()
        salt = hmac.digest(self._secret, seed, "sha512")
        while len(salt) < salt_size:
            salt += hmac.digest(self._secret, salt, "sha512")
        key = hmac.digest(self._secret, b"key" + seed, mechanism.hash_name)
        return ScramCredential(salt[:salt_size], key, key, iterations)

    def _usual_shape(self, mechanism: ScramMechanism) -> tuple[int, int]:
        """Return iterations and size of the salt of most credentials."""
        usual = self._usual.get(mechanism)
        if usual is None:
            known = self._credentials().get(mechanism.value, {})
            shapes = Counter((one.iterations, len(one.salt)) for one in known.values())
            usual = shapes.most_common(1)[0][0] if shapes else (ITERATIONS_MIN, SALT_BYTES)
            self._usual[mechanism] = usual
        return usual
