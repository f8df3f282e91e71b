"""`flintmq token`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "create": CommandEntry("flintmq.cli.token.create", "Create a delegation token."),
    "renew": CommandEntry("flintmq.cli.token.renew", "Move the end of a token further away."),
    "expire": CommandEntry("flintmq.cli.token.expire", "Remove a token, or move its end nearer."),
    "list": CommandEntry("flintmq.cli.token.list", "List the tokens that you may see."),
}

command = LazyGroup(
    name="token",
    entries=COMMANDS,
    help="Create, renew, expire and list delegation tokens.",
    epilog="A delegation token is a credential with an end, for programs that act in your name. The broker needs the "
    "setting delegation.token.secret.key, and you a connection with SASL or a client certificate."
    "\n\n\b\nExamples:\n  flintmq token create --max-lifetime 2d --command-config alice.properties\n"
    "  flintmq token list\n  flintmq token expire Lq8Yt0a3RrGJd7rRk1xk4w",
)
