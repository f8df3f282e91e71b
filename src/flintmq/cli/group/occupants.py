"""What to say to those who want to change a group that has members: who they are."""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.cli.common.output import many
from flintmq.client.admin.groups import DescribedGroup, GroupMember, describe_group
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ErrorCode, RequestError

_NAMED_MAX = 5


def find_group(client: ClusterClient, name: str) -> DescribedGroup | None:
    """None if there is no such group."""
    try:
        return describe_group(client, name)
    except RequestError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


def non_empty_group(name: str, members: Sequence[GroupMember], what: str) -> RequestError:
    named = ", ".join(str(member) for member in members[:_NAMED_MAX])
    more = f" and {len(members) - _NAMED_MAX:,} more" if len(members) > _NAMED_MAX else ""
    who = f": {named}{more}" if members else ""
    return RequestError(
        ErrorCode.NON_EMPTY_GROUP,
        f"group {name} has {many(len(members), 'member') if members else 'members'}{who}. "
        f"Stop them first: only a group without members can be {what}.",
    )
