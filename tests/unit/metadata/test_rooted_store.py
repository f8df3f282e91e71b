"""A broker sees its part of a shared store only."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.metadata.rooted_store import RootedStore
from flintmq.metadata.store import Put
from support.metadata.shared_store import SharedStore


def test_keys_outside_the_root_are_neither_seen_nor_touched() -> None:
    async def scenario() -> None:
        shared = SharedStore()
        whole, rooted = shared.session(), RootedStore(shared.session(), "/flint/a/")
        await whole.txn({}, {"/flint/ab/t": Put(b"1"), "/topics/t": Put(b"2")})
        made = await rooted.txn({"/topics/t": 0}, {"/topics/t": Put(b"3")})
        assert made.committed
        assert dict(shared.keyspace.items)["/flint/a/topics/t"].value == b"3"
        view = await rooted.get("/")
        assert {key: item.value for key, item in view.items.items()} == {"/topics/t": b"3"}
        refused = await rooted.txn({"/topics/t": 0}, {"/topics/t": None})
        assert list(refused.current) == ["/topics/t"]
        changes = rooted.watch("/", after=0)
        change = await anext(changes)
        assert (change.revision, list(change.items)) == (made.revision, ["/topics/t"])

    asyncio.run(scenario())


@pytest.mark.parametrize("root", ["flint/", "/flint", ""])
def test_a_root_begins_and_ends_with_a_slash(root: str) -> None:
    with pytest.raises(ValueError, match="begins and ends"):
        RootedStore(SharedStore().session(), root)
