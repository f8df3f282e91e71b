"""The users of PLAIN: those of a listener's `sasl.jaas.config`, and those of the users file."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping

from flintmq.security.authentication.password_hash import SALT_BYTES, PasswordHash
from flintmq.security.authentication.users_file import UsersFile


class PlainUsers:
    """Verifies passwords in a time that does not depend on the user.

    Where there is a users file every password is hashed, that of an unknown user too; the work is a thread's.
    """

    def __init__(self, passwords: Mapping[str, str], users_file: UsersFile | None, secret: bytes) -> None:
        """`secret` makes the hash that unknown users are compared with."""
        self._passwords = {name: password.encode() for name, password in passwords.items()}
        self._users_file = users_file
        self._secret = secret

    def verify(self, username: str, password: str) -> bool | Callable[[], bool]:
        known = self._passwords.get(username)
        is_listed = hmac.compare_digest(known if known is not None else self._secret, password.encode())
        is_listed = is_listed and known is not None
        users_file = self._users_file
        if users_file is None:
            return is_listed
        return lambda: self._verify_hashed(users_file, username, password) or is_listed

    def _verify_hashed(self, users_file: UsersFile, username: str, password: str) -> bool:
        users_file.refresh()
        hashed = users_file.users.get(username)
        if hashed is None:
            iterations = users_file.usual_iterations
            PasswordHash(iterations, self._secret[:SALT_BYTES], bytes(64)).matches(password)
            return False
        return hashed.matches(password)
