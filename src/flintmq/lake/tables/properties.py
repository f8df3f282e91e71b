"""Progress and properties as the texts that formats keep: table properties whose names begin with `flintmq.`. Pure.

flintmq.progress.<topic> = {"topic_id": "…", "next_offsets": {"0": 17}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from flintmq.lake.tables.table import TableDropped, TableError, TableRenamed, TopicProgress

PREFIX: Final = "flintmq."
DROPPED: Final = "flintmq.dropped"
RENAMED: Final = "flintmq.renamed"
"""The table's new name: no writer commits to the table under another one any more."""
REBUILDING: Final = "flintmq.rebuilding"
"""The id of a rebuild under way: its files are not in the table yet, and must not be cleaned."""
REBUILT: Final = "flintmq.rebuilt"
"""The id of the last rebuild."""
BACKFILLED: Final = "flintmq.backfilled"
"""The id of the last commit of a backfill."""
_PROGRESS: Final = "flintmq.progress."


class _Kept(msgspec.Struct):
    topic_id: str
    next_offsets: dict[int, int]


def to_texts(progress: Mapping[str, TopicProgress], properties: Mapping[str, str]) -> dict[str, str]:
    texts = {}
    for name, value in properties.items():
        if not name.startswith(PREFIX) or name.startswith(_PROGRESS):
            raise ValueError(f"A property of ours is named {PREFIX}…, and not {name}.")
        texts[name] = value
    for topic, one in progress.items():
        offsets = dict(sorted(one.next_offsets.items()))
        texts[_PROGRESS + topic] = msgspec.json.encode(_Kept(one.topic_id, offsets)).decode()
    return texts


def from_texts(
    texts: Mapping[str, str], name: str | None = None
) -> tuple[dict[str, TopicProgress], dict[str, str]]:
    """Progress and the other properties of ours; what is not ours is left out.

    TableDropped if they say that the table is being dropped, TableRenamed if they say that it has another name than
    `name`: they are read whenever the table is.
    """
    if DROPPED in texts:
        raise TableDropped(
            "A drop of the table was begun and not finished. Finish it with: flintmq lake drop"
        )
    if (renamed := texts.get(RENAMED)) is not None and renamed != name:
        raise TableRenamed(f"The table is named {renamed} now. Start the command again.", to=renamed)
    progress, properties = {}, {}
    for key, value in texts.items():
        if key.startswith(_PROGRESS):
            try:
                kept = msgspec.json.decode(value, type=_Kept)
            except msgspec.MsgspecError as error:
                raise TableError(
                    f"The table's property {key} makes no sense ({error}); restore it."
                ) from error
            progress[key.removeprefix(_PROGRESS)] = TopicProgress(kept.topic_id, kept.next_offsets)
        elif key.startswith(PREFIX):
            properties[key] = value
    return progress, properties
