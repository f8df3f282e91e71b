"""Produced batches looked into, where a topic asks for it: every record checked, the batch recompressed. Pure."""

from __future__ import annotations

from flintmq.errors import ErrorCode, RequestError
from flintmq.records.batch import BatchHeader
from flintmq.records.compression import Codec
from flintmq.records.limits import VALIDATED_BYTES_MAX
from flintmq.records.record import check_records, payload_of, with_payload
from flintmq.settings import TopicConfig


def target_codec(name: str) -> Codec | None:
    """Return the codec that `compression.type` names; None keeps the producer's own."""
    if name == "producer":
        return None
    return Codec.NONE if name == "uncompressed" else Codec[name.upper()]


def validated_batch(
    batch: bytes,
    header: BatchHeader,
    config: TopicConfig,
    *,
    codec: Codec | None,
    require_keys: bool,
    earliest_ms: int,
    latest_ms: int,
) -> bytes:
    """Return the batch as the topic wants it. RequestError, or RecordError, if one of its records is wrong."""
    payload = payload_of(batch, limit=VALIDATED_BYTES_MAX)
    check_records(
        payload,
        header.record_count,
        base_timestamp=header.base_timestamp,
        require_keys=require_keys,
        earliest_ms=earliest_ms,
        latest_ms=latest_ms,
    )
    if codec is None or codec == header.codec:
        return batch
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    rebuilt = with_payload(header, payload, codec, levels.get(codec))
    if len(rebuilt) > config.max_message_bytes:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {len(rebuilt)} bytes once compressed as the topic wants it; "
            f"it takes up to {config.max_message_bytes}.",
        )
    return rebuilt
