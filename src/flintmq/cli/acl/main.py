"""`flintmq acl`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "add": CommandEntry(
        "flintmq.cli.acl.add", "Allow or deny a principal operations on topics, groups and more."
    ),
    "list": CommandEntry("flintmq.cli.acl.list", "List the ACLs, all or some."),
    "delete": CommandEntry("flintmq.cli.acl.delete", "Delete the ACLs that are selected."),
}

command = LazyGroup(
    name="acl",
    entries=COMMANDS,
    help="""Add, list and delete ACLs: which principal may do what.

    An ACL allows or denies a principal one operation on a resource, or on all resources whose names begin alike. A
    principal without an ACL may do nothing; an ACL that denies wins over one that allows; the principals in the
    broker's `super.users` need no ACL. Read, Write, Delete and Alter include Describe. The broker must run with
    `authorizer.class.name`. The rights that each request needs are in docs/security.md.
    """,
    epilog="\b\nExamples:\n"
    "  flintmq acl add --allow-principal User:alice --producer --topic orders\n"
    "  flintmq acl add --allow-principal User:bob --consumer --topic orders --group billing\n"
    "  flintmq acl list --topic orders",
)
