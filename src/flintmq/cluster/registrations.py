"""What a broker registers, and whether it may (KIP-631, KIP-966). Pure.

A registration is a leased key: it vanishes when its broker dies or cannot renew it, and the broker is fenced by that.
The revision of the key is the broker epoch. A broker id belongs to one process at a time: a second one is refused
while the registration of the first lives.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.image import ClusterImage
from flintmq.metadata.keys import BrokerValue, ListenerValue
from flintmq.metadata.store import Put, StoreItem


class SavedRegistration(msgspec.Struct, frozen=True):
    """What a broker keeps in its data directory, written after it has registered."""

    cluster_id: str
    """Revisions mean something in one store only."""
    node_id: int
    boot_id: str
    """Of the machine when the broker registered: it changes when the machine starts."""
    clean_since: int


encode_saved = msgspec.json.encode
decode_saved = msgspec.json.Decoder(SavedRegistration).decode


def clean_since(
    saved: SavedRegistration | None,
    *,
    cluster_id: str,
    node_id: int,
    boot_id: str,
    was_stopped_cleanly: bool,
    has_lost_records: bool,
) -> int:
    """Return the broker epoch since which the logs have been kept; 0 if that begins with the next registration.

    A process that was killed has lost nothing: the operating system still writes what it was given. Not so after the
    machine itself has stopped, unless the broker had been stopped cleanly before. `has_lost_records` says that
    opening the logs found damage, whatever the reason. A data directory without the file is new.
    """
    if saved is None or saved.cluster_id != cluster_id or saved.node_id != node_id or has_lost_records:
        return 0
    return saved.clean_since if was_stopped_cleanly or saved.boot_id == boot_id else 0


def registration(
    node_id: int,
    found: StoreItem | None,
    *,
    incarnation: str,
    listeners: Sequence[ListenerValue],
    rack: str | None,
    clean_since: int,
    lease: int,
) -> tuple[dict[str, int], dict[str, Put | None]]:
    """Return what the transaction of a registration expects and writes.

    `found` is the key as it is. A registration of the same process is replaced: its lease was lost, or the outcome of
    an earlier attempt is not known. RequestError if another process has the id.
    """
    key = keys.broker(node_id)
    check_free(node_id, found, incarnation)
    value = BrokerValue(
        incarnation=incarnation, listeners=list(listeners), rack=rack, clean_since=clean_since
    )
    return {key: 0 if found is None else found.revision}, {key: Put(keys.encode(value), lease)}


def check_free(node_id: int, found: StoreItem | None, incarnation: str) -> None:
    if found is not None and keys.decode_broker(found.value).incarnation != incarnation:
        raise RequestError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"Another broker is registered with the id {node_id}."
        )


def draining(
    node_id: int, *, incarnation: str, epoch: int, lease: int
) -> tuple[dict[str, int], dict[str, Put | None]]:
    """Return the transaction that announces a controlled shutdown: others take over what the broker leads."""
    value = keys.DrainingValue(incarnation=incarnation)
    return {keys.broker(node_id): epoch}, {keys.draining(node_id): Put(keys.encode(value), lease)}


def is_drained(image: ClusterImage, node_id: int) -> bool:
    """Whether a broker that shuts down may stop: it leads nothing that another replica in sync could lead."""
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.leader == node_id and any(
                node != node_id and node in image.brokers and not image.brokers[node].is_draining
                for node in state.isr
            ):
                return False
    return True
