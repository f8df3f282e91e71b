"""What a broker may claim of its logs when it registers."""

from __future__ import annotations

import pytest

from flintmq.cluster.registrations import SavedRegistration, clean_since, decode_saved, encode_saved

SAVED = SavedRegistration(cluster_id="c", node_id=1, boot_id="b", clean_since=40)


@pytest.mark.parametrize(
    ("saved", "boot_id", "was_stopped_cleanly", "has_lost_records", "since"),
    [
        # kill -9 in the same boot: the operating system still writes what it was given.
        (SAVED, "b", False, False, 40),
        (SAVED, "b", True, False, 40),
        # A clean stop, then the machine was started again.
        (SAVED, "b2", True, False, 40),
        # A power loss.
        (SAVED, "b2", False, False, 0),
        # An empty data directory.
        (None, "b", True, False, 0),
        # Damage that was found at the start.
        (SAVED, "b", True, True, 0),
    ],
)
def test_logs_count_as_kept_unless_the_machine_stopped(
    saved: SavedRegistration | None,
    boot_id: str,
    was_stopped_cleanly: bool,
    has_lost_records: bool,
    since: int,
) -> None:
    assert (
        clean_since(
            saved,
            cluster_id="c",
            node_id=1,
            boot_id=boot_id,
            was_stopped_cleanly=was_stopped_cleanly,
            has_lost_records=has_lost_records,
        )
        == since
    )


@pytest.mark.parametrize(("cluster_id", "node_id"), [("d", 1), ("c", 2)])
def test_revisions_of_another_cluster_or_broker_mean_nothing(cluster_id: str, node_id: int) -> None:
    found = clean_since(
        decode_saved(encode_saved(SAVED)),
        cluster_id=cluster_id,
        node_id=node_id,
        boot_id="b",
        was_stopped_cleanly=True,
        has_lost_records=False,
    )
    assert found == 0
