"""Schemas by their id: from a registry over HTTP, or from a folder of files.

    source = HttpSchemas("http://localhost:8081")       Confluent's API, as FlintMQ's own registry has it
    source = SchemaFolder("schemas")                    7.avsc, 8.json, 9.proto …

Invariant: None means that the source has said that there is no such schema; whatever else goes wrong is an error, so
that nobody takes records for bad because of a cable. What was found stays known: a schema's id never means another.
Both can be pickled, with what they know. Passwords are in no message.
"""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPException
from typing import Any, Final, NamedTuple, Protocol

from flintmq.arrow.formats.decoder import SchemaError
from flintmq.errors import ConfigurationError, FlintError

_ATTEMPTS: Final = 4
_FIRST_PAUSE_S: Final = 0.1
_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_UNKNOWN_MAX: Final = 1000
_REFERENCES_MAX: Final = 200


class RegistryError(FlintError):
    """The registry cannot be asked, or answers nonsense."""


class SchemaType(StrEnum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class RegisteredSchema(NamedTuple):
    kind: SchemaType
    text: str
    references: dict[str, str]
    """Texts of other schemas by the names that this one has for them, each after those that it refers to."""


class SchemaSource(Protocol):
    def by_id(self, schema_id: int) -> RegisteredSchema | None: ...

    def ids_of(self, subject: str) -> list[int]:
        """Of all its versions, oldest first. SchemaError if there is no such subject."""


@dataclass
class HttpSchemaRegistry:
    url: str
    """May begin with a name and a password, as in `http://name:password@host:8081`."""
    timeout_s: float = _TIMEOUT_S
    unknown_max: int = _UNKNOWN_MAX
    """Different ids that the registry may not know; more are those of values without frames."""
    first_pause_s: float = _FIRST_PAUSE_S
    _known: dict[int, RegisteredSchema | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError("The address of a schema registry is like http://localhost:8081")

    def __repr__(self) -> str:
        return f"HttpSchemaRegistry({self._shown!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Without the ids that were not there: elsewhere and later they may be."""
        known = {schema_id: one for schema_id, one in self._known.items() if one is not None}
        return {**self.__dict__, "_known": known}

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        if schema_id not in self._known:
            if sum(one is None for one in self._known.values()) >= self.unknown_max:
                raise RegistryError(
                    f"More than {self.unknown_max} different schema ids are not known to {self._shown}: "
                    "these records do not seem to be framed, or belong to another registry. Decode them otherwise"
                )
            response = self._get(f"/schemas/ids/{schema_id}")
            self._known[schema_id] = None if response is None else self._registered(response)
        return self._known[schema_id]

    def ids_of(self, subject: str) -> list[int]:
        quoted = urllib.parse.quote(subject, safe="")
        versions = self._get(f"/subjects/{quoted}/versions")
        if versions is None:
            raise SchemaError(
                f"The registry {self._shown} has no subject {subject}. Name the one that the records' schemas are in"
            )
        ids = []
        for version in versions:
            response = self._get(f"/subjects/{quoted}/versions/{version}")
            # A version may be deleted between the two questions.
            if response is not None:
                ids.append(int(_member(response, "id")))
                self._known[ids[-1]] = self._registered(response)
        return ids

    def _registered(self, response: Any) -> RegisteredSchema:
        text, references = str(_member(response, "schema")), dict[str, str]()
        self._add_references(response, references)
        return RegisteredSchema(_kind(response), text, references)

    def _add_references(self, response: Any, found: dict[str, str]) -> None:
        for one in response.get("references") or ():
            name, subject, version = (str(_member(one, key)) for key in ("name", "subject", "version"))
            if name in found:
                continue
            if len(found) >= _REFERENCES_MAX:
                raise SchemaError(f"A schema refers to more than {_REFERENCES_MAX} others")
            quoted = urllib.parse.quote(subject, safe="")
            other = self._get(f"/subjects/{quoted}/versions/{urllib.parse.quote(version, safe='')}")
            if other is None:
                raise RegistryError(f"The registry {self._shown} lacks {subject}, which a schema refers to")
            self._add_references(other, found)
            found[name] = str(_member(other, "schema"))

    @property
    def _shown(self) -> str:
        parts = urllib.parse.urlsplit(self.url)
        return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def _get(self, path: str) -> Any:
        """None if the registry says that it is not there."""
        request = urllib.request.Request(
            self._shown.rstrip("/") + path, headers={"Accept": "application/json"}
        )
        parts = urllib.parse.urlsplit(self.url)
        if parts.username is not None:
            name, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
            token = base64.b64encode(f"{name}:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {token}")
        failure: Exception | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(self.first_pause_s * 4 ** (attempt - 1))
            try:
                with urllib.request.urlopen(request, timeout=self.timeout_s) as response:  # nosec B310
                    return self._parsed(response.read(_ANSWER_BYTES_MAX + 1))
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == 404 and _is_registrys(error.read(_ANSWER_BYTES_MAX)):
                        return None
                failure = error
                if error.code < 500 and error.code != 429:
                    break
            except (OSError, HTTPException) as error:
                failure = error
        raise RegistryError(
            f"The schema registry {self._shown} cannot be asked for {path}: {failure}. "
            "See that it runs, and that its address, name and password are right"
        ) from failure

    def _parsed(self, data: bytes) -> Any:
        try:
            if len(data) <= _ANSWER_BYTES_MAX:
                return json.loads(data)
        except ValueError:
            pass
        raise RegistryError(f"{self._shown} answers what is no JSON, or too long: it is no schema registry")


@dataclass(frozen=True)
class SchemaDirectory:
    path: str

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        for suffix, kind in (
            (".avsc", SchemaType.AVRO),
            (".json", SchemaType.JSON),
            (".proto", SchemaType.PROTOBUF),
        ):
            try:
                with open(os.path.join(self.path, f"{schema_id}{suffix}"), encoding="utf-8") as file:
                    return RegisteredSchema(kind, file.read(), {})
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as why:
                raise RegistryError(f"The schema {schema_id} cannot be read: {why}") from why
        if not os.path.isdir(self.path):
            raise RegistryError(f"The folder of schemas {self.path} is not there")
        return None

    def ids_of(self, subject: str) -> list[int]:
        """All in the folder: files have no subjects."""
        try:
            names = [os.path.splitext(name) for name in os.listdir(self.path)]
        except OSError as why:
            raise RegistryError(f"The folder of schemas {self.path} cannot be read: {why}") from why
        ids = sorted(
            {int(stem) for stem, end in names if end in (".avsc", ".json", ".proto") and stem.isdecimal()}
        )
        if not ids:
            raise SchemaError(
                f"{self.path} holds no schemas, which are named by their ids, as in 7.avsc or 8.proto"
            )
        return ids


def _is_registrys(body: bytes) -> bool:
    """Whether a 404 is about the schema, and not about an address that is no registry's."""
    try:
        return str(json.loads(body)["error_code"]).startswith("404")
    except (ValueError, KeyError, TypeError):
        return False


def _member(response: Any, name: str) -> Any:
    if not isinstance(response, dict) or name not in response:
        raise RegistryError(f"What the registry says of a schema lacks {name!r}: it is no schema registry")
    return response[name]


def _kind(response: Any) -> SchemaType:
    named = str(response.get("schemaType") or "AVRO").lower()
    try:
        return SchemaType(named)
    except ValueError:
        raise SchemaError(f"The registry has a schema of the type {named}, which is not read here") from None
