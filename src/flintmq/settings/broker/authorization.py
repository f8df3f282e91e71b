"""Authorization: what decides, and who needs no ACL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flintmq.settings.declaration import setting
from flintmq.settings.kinds import SettingKind

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _read_principals(text: str) -> str:
    for one in filter(None, (part.strip() for part in text.split(";"))):
        kind, _, name = one.partition(":")
        if not kind or not name:
            raise ValueError(f"expected principals such as User:alice separated by semicolons, not {one}")
    return text.strip()


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class AuthorizationConfig:
    __slots__ = ()

    authorizer_class_name: str = setting(
        "authorizer.class.name",
        SettingKind.STRING,
        "",
        doc="What decides whether a client may do what it asks for. Empty allows everything. "
        f"`{STANDARD_AUTHORIZER}` decides by ACLs, as in Kafka; any other name is that of an installed entry point "
        "of the group `flintmq.authorizers`.",
    )
    super_users: str = setting(
        "super.users",
        SettingKind.STRING,
        "",
        read=_read_principals,
        doc="Principals that may do everything, whatever the ACLs say, separated by semicolons: "
        "`User:admin;User:CN=ops,O=example`.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        SettingKind.BOOLEAN,
        False,
        doc="Allow everything on a resource that no ACL is about. The default denies it.",
    )
    flint_acl_file: str = setting(
        "flint.acl.file",
        SettingKind.STRING,
        "",
        doc="A YAML file that holds all ACLs, instead of the metadata store. It is read at the start, on SIGHUP, and "
        "when it changes. Empty keeps the ACLs in the metadata store, where `flintmq acl` and Kafka's tools "
        "change them.",
    )
