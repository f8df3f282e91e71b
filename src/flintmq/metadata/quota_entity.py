"""What a quota is set for: a user, a client id, both together, or an address; each by name or as default. Pure."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

DEFAULT = ""
"""In place of a name: for all that have no quota of their own. No name is empty."""


class QuotaEntity(NamedTuple):
    """None is a part that the entity does not have."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The types and names that the entity has, in Kafka's words for the types."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return [(kind, name) for kind, name in named if name is not None]

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name}" if name else f"default {kind}" for kind, name in self.parts)


def entity_key(entity: QuotaEntity) -> str:
    """Return the entity as a part of a key in the metadata store: `user=alice&client-id`."""
    return "&".join(f"{kind}={quote(name, safe='')}" if name else kind for kind, name in entity.parts)


def parse_entity_key(text: str) -> QuotaEntity:
    names: dict[str, str] = {}
    for part in text.split("&"):
        kind, _, name = part.partition("=")
        names[kind] = unquote(name)
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))
