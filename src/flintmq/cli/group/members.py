"""`flintmq group members`, and the error of other commands that a group with members rejects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import many, note, print_json, print_table
from flintmq.client.admin.groups import DescribedGroup, GroupMember, describe_group
from flintmq.client.assignors import Assignment
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ErrorCode, RequestError

_NAMED_MAX: Final = 5


@click.command(
    "members",
    cls=Command,
    examples=("flintmq group members billing", "flintmq group members billing --json"),
)
@click.argument("group")
@bootstrap_option
@json_option
def command(group: str, bootstrap: str, as_json: bool) -> None:
    """Show the members of a group and what they read.

    The instance is the name of a static member (group.instance.id), which keeps its partitions over a restart.
    """
    with open_client(bootstrap) as client:
        found = describe_group(client, group)
    if as_json:
        print_json([member_fields(member) for member in found.members])
    elif found.members:
        print_table(
            ("member", "instance", "client", "host", "partitions"),
            [
                (
                    member.id,
                    member.instance_id or "-",
                    member.client_id or "-",
                    member.host or "-",
                    partitions_text(member.assignment) or "-",
                )
                for member in sorted(found.members, key=lambda member: member.id)
            ],
        )
    else:
        note(f"{group} has no members; it is {found.state}.")


def member_fields(member: GroupMember) -> dict[str, Any]:
    return {
        "member": member.id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "topics": list(member.topics),
        "assignment": {topic: sorted(member.assignment[topic]) for topic in sorted(member.assignment)},
    }


def partitions_text(assignment: Assignment) -> str:
    """`orders:0-2,5 users:1`."""
    return " ".join(f"{topic}:{_runs(sorted(assignment[topic]))}" for topic in sorted(assignment))


def _runs(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def find_group(client: ClusterClient, name: str) -> DescribedGroup | None:
    """Return None if there is no such group."""
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
