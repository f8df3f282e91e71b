"""The audit log: where it goes, what it holds, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flintmq.settings.declaration import setting
from flintmq.settings.kinds import SettingKind, at_least, between, one_of

DENIALS: Final = "denials"
CHANGES: Final = "changes"
ALL: Final = "all"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class AuditConfig:
    __slots__ = ()

    flint_audit_log_file: str = setting(
        "flint.audit.log.file",
        SettingKind.STRING,
        "",
        doc="A file that gets the audit log, one JSON object a line. Empty writes none.",
    )
    flint_audit_log_events: str = setting(
        "flint.audit.log.events",
        SettingKind.STRING,
        DENIALS,
        check=one_of(DENIALS, CHANGES, ALL),
        doc="What the audit log holds: `denials` are denied operations and failed authentications; `changes` adds "
        "authentications and administrative changes (ACLs, users, quotas, tokens, settings, topics, groups); `all` "
        "adds every allowed operation on a resource that the client named.",
    )
    flint_audit_log_rate_max: int = setting(
        "flint.audit.log.rate.max",
        SettingKind.INT,
        1000,
        check=between(1, 100_000),
        doc="Events per second that are written; the rest is counted, and a line says how many were left out.",
    )
    flint_audit_log_file_max_bytes: int = setting(
        "flint.audit.log.file.max.bytes",
        SettingKind.LONG,
        64 << 20,
        check=at_least(4096),
        doc="The audit log is renamed to its name and a number once it would grow beyond this.",
    )
    flint_audit_log_file_count: int = setting(
        "flint.audit.log.file.count",
        SettingKind.INT,
        10,
        check=between(2, 1000),
        doc="Files of the audit log that are kept, the one in use among them.",
    )
