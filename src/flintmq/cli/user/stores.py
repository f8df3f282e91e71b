"""Where users are kept: a running broker, a data directory without one, or a users file for PLAIN."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import click

from flintmq.cli.common.connection import bootstrap_option, open_client
from flintmq.errors import ConfigurationError, ErrorCode, RequestError
from flintmq.protocol.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, salted_password

F = TypeVar("F", bound=Callable[..., Any])

PLAIN = "PLAIN"
DEFAULT_MECHANISM = ScramMechanism.SHA_512.value
DEFAULT_ITERATIONS = 8192


class KnownUser(NamedTuple):
    name: str
    iterations: dict[str, int]
    """By mechanism."""


class UserStore(Protocol):
    def add(self, user: str, password: str, mechanisms: Sequence[str], iterations: int | None) -> None: ...

    def users(self) -> list[KnownUser]: ...

    def delete(self, user: str, mechanisms: Sequence[str]) -> list[str]:
        """Delete these credentials, or all for none; return the mechanisms that it had."""
        ...


def store_options(command: F) -> F:
    """Add `--data-dir`, `--users-file` and the options of commands that connect."""
    options = (
        click.option(
            "--data-dir",
            metavar="DIRECTORY",
            help="The data directory of a broker that does not run, or has never run.",
        ),
        click.option(
            "--users-file", metavar="FILE", help="A file with users of PLAIN (the setting flint.users.file)."
        ),
        bootstrap_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def mechanism_option(words: str) -> Callable[[F], F]:
    return click.option(
        "--mechanism",
        "mechanisms",
        multiple=True,
        type=click.Choice([one.value for one in ScramMechanism], case_sensitive=False),
        help=words,
    )


def open_store(bootstrap: str, data_dir: str | None, users_file: str | None) -> UserStore:
    if data_dir and users_file:
        raise ConfigurationError("give --data-dir or --users-file, not both")
    if users_file:
        return FileStore(users_file)
    return DirectoryStore(data_dir) if data_dir else BrokerStore(bootstrap)


def scram_iterations(iterations: int | None) -> int:
    chosen = DEFAULT_ITERATIONS if iterations is None else iterations
    if not ITERATIONS_MIN <= chosen <= ITERATIONS_MAX:
        raise ConfigurationError(f"--iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    return chosen


class BrokerStore:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def add(self, user: str, password: str, mechanisms: Sequence[str], iterations: int | None) -> None:
        from flintmq.client.admin.users import SALT_BYTES, set_password

        count = scram_iterations(iterations)
        with open_client(self._bootstrap) as client:
            for mechanism in mechanisms or (DEFAULT_MECHANISM,):
                salt = secrets.token_bytes(SALT_BYTES)
                set_password(client, user, password, ScramMechanism(mechanism), count, salt)

    def users(self) -> list[KnownUser]:
        from flintmq.client.admin.users import list_users

        with open_client(self._bootstrap) as client:
            return [KnownUser(*one) for one in list_users(client)]

    def delete(self, user: str, mechanisms: Sequence[str]) -> list[str]:
        from flintmq.client.admin.users import delete_credentials

        wanted = list(mechanisms) or next(
            (list(one.iterations) for one in self.users() if one.name == user), []
        )
        if not wanted:
            raise no_such_user(user)
        with open_client(self._bootstrap) as client:
            delete_credentials(client, user, [ScramMechanism(one) for one in wanted])
        return wanted


class DirectoryStore:
    """Nothing connects: the broker of the directory must not run."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir

    def add(self, user: str, password: str, mechanisms: Sequence[str], iterations: int | None) -> None:
        from flintmq.client.admin.users import SALT_BYTES
        from flintmq.metadata.scram_credentials import ScramUpsertion

        count = scram_iterations(iterations)
        for name in mechanisms or (DEFAULT_MECHANISM,):
            mechanism, salt = ScramMechanism(name), secrets.token_bytes(SALT_BYTES)
            salted = salted_password(mechanism, password, salt, count)
            self._alter([], [ScramUpsertion(user, mechanism.type, count, salt, salted)])

    def users(self) -> list[KnownUser]:
        from flintmq.app.offline_metadata import with_credentials
        from flintmq.metadata.scram_credentials import ScramCredentials, ScramDescription

        if not os.path.isdir(self._data_dir):
            raise ConfigurationError(f"there is no directory {self._data_dir}")

        async def describe(credentials: ScramCredentials) -> list[KnownUser]:
            found = credentials.describe(None)
            return [
                KnownUser(one.user, {mechanism.value: count for mechanism, count in one.iterations})
                for one in found
                if isinstance(one, ScramDescription)
            ]

        return with_credentials(self._data_dir, describe)

    def delete(self, user: str, mechanisms: Sequence[str]) -> list[str]:
        from flintmq.metadata.scram_credentials import ScramDeletion

        wanted = list(mechanisms) or next(
            (list(one.iterations) for one in self.users() if one.name == user), []
        )
        if not wanted:
            raise no_such_user(user)
        for mechanism in wanted:
            self._alter([ScramDeletion(user, ScramMechanism(mechanism).type)], [])
        return wanted

    def _alter(self, deletions: Sequence[Any], upsertions: Sequence[Any]) -> None:
        from flintmq.app.offline_metadata import with_credentials

        results = with_credentials(self._data_dir, lambda one: one.alter(deletions, upsertions))
        for error in results.values():
            if error is not None:
                raise error


class FileStore:
    def __init__(self, path: str) -> None:
        self._path = path

    def add(self, user: str, password: str, mechanisms: Sequence[str], iterations: int | None) -> None:
        from flintmq.security.authentication import password_hash

        if mechanisms:
            raise ConfigurationError("a users file is for PLAIN: leave out --mechanism")
        if not user.strip() or user != user.strip() or user.startswith("#") or not user.isprintable():
            raise ConfigurationError("a name in a users file cannot begin with #, or have spaces at its ends")
        count = password_hash.ITERATIONS if iterations is None else iterations
        if not password_hash.ITERATIONS_MIN <= count <= password_hash.ITERATIONS_MAX:
            raise ConfigurationError(
                f"--iterations must be between {password_hash.ITERATIONS_MIN} and {password_hash.ITERATIONS_MAX}"
            )
        hashed = password_hash.hash_password(password, secrets.token_bytes(password_hash.SALT_BYTES), count)
        lines, _ = self._without(user)
        self._write([*lines, f"{user}:{hashed}"])

    def users(self) -> list[KnownUser]:
        from flintmq.security.authentication.users_file import parse_users

        try:
            users = parse_users("\n".join(self._lines(must_exist=True)))
        except ValueError as error:
            raise ConfigurationError(f"{self._path}: {error}") from None
        return [KnownUser(name, {PLAIN: hashed.iterations}) for name, hashed in sorted(users.items())]

    def delete(self, user: str, mechanisms: Sequence[str]) -> list[str]:
        lines, found = self._without(user)
        if not found:
            raise no_such_user(user)
        self._write(lines)
        return [PLAIN]

    def _without(self, user: str) -> tuple[list[str], bool]:
        lines = self._lines()
        kept = [line for line in lines if line.strip().rpartition(":")[0] != user]
        return kept, len(kept) < len(lines)

    def _lines(self, *, must_exist: bool = False) -> list[str]:
        try:
            with open(self._path, encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            if must_exist:
                raise ConfigurationError(f"there is no file {self._path}") from None
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{self._path} cannot be read: {error}") from None

    def _write(self, lines: Sequence[str]) -> None:
        """Replace the file in one step, readable by its owner only: a broker may read it at any moment."""
        aside = f"{self._path}.tmp"
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(fd, "w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self._path)
        except OSError as error:
            raise ConfigurationError(f"{self._path} cannot be written: {error.strerror}") from None


def no_such_user(user: str) -> RequestError:
    return RequestError(
        ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {user}; `flintmq user list` lists all"
    )
