"""Decodes values of records into columns, and infers the columns from a sample where the user names none.

    schema = infer_columns(client, [topic], options, offsets_max=10_000)
    values = ValueDecoder(open_decoder("json", schema=schema), into=None)
    values.fields, values.decode(batch.column("value"))

The lake and pipelines both use it; what becomes of records that cannot be decoded, and which columns stand beside the
decoded ones, is theirs. A ValueDecoder can be pickled: it travels to the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flintmq.arrow.formats import Decoder, ddl
from flintmq.arrow.formats.decoder import RowError, Values
from flintmq.arrow.formats.extra_fields import ExtraFields
from flintmq.arrow.formats.json.inference import infer
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.range_reader import read_range
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.client.metadata import TopicMetadata


class DecodedColumns(NamedTuple):
    columns: list[Any]
    """Arrays of the decoder's fields, with nulls where a value is null or cannot be decoded."""
    errors: list[RowError]
    """Ascending; no row twice."""
    row_count: int
    extra: ExtraFields | None = None
    """Fields that no column takes, if the decoder counts them."""

    @property
    def is_good(self) -> Any:
        """A boolean array: whether the row has no error."""
        found = np.ones(self.row_count, np.bool_)
        found[[one.row for one in self.errors]] = False
        return pa.array(found)


@dataclass(frozen=True)
class ValueDecoder:
    decoder: Decoder
    into: str | None = None
    """One column for all that is decoded; None: each field has its own."""

    @property
    def fields(self) -> list[pa.Field]:
        decoded = list(self.decoder.schema)
        return decoded if self.into is None else [pa.field(self.into, pa.struct(decoded))]

    def decode(self, values: Values) -> DecodedColumns:
        decoded = self.decoder.decode(values)
        columns = decoded.rows.flatten() if self.into is None else [decoded.rows]
        return DecodedColumns(columns, decoded.errors, len(decoded.rows), decoded.extra)


def is_inferred(
    format: str, *, schema: object = None, schema_file: object = None, registry: object = None
) -> bool:
    """Return whether columns come from a sample: JSON without any schema."""
    return format == "json" and not (schema or schema_file or registry)


def value_subject(topic: str) -> str:
    """Return the registry's subject of a topic's values, as Confluent's serializers name it."""
    return f"{topic}-value"


def infer_columns(
    client: ClusterClient, topics: Sequence[TopicMetadata], options: SourceOptions, *, offsets_max: int
) -> str | None:
    """Return the columns of the first JSON values as DDL; None if there is no record.

    `offsets_max` is shared by all partitions.
    """
    values = pa.chunked_array(_sample(client, topics, options, offsets_max), pa.binary())
    return ddl.write(infer(values)) if len(values) else None


def _sample(
    client: ClusterClient, topics: Sequence[TopicMetadata], options: SourceOptions, offsets_max: int
) -> Iterator[pa.Array]:
    """Read values from the start of each partition."""
    topic_ids = {(topic.name, index): topic.id for topic in topics for index in sorted(topic.partitions)}
    partitions = list(topic_ids)
    starts = offsets(client, partitions, EARLIEST)
    ends = offsets(client, partitions, LATEST, read_committed=options.read_committed)
    share = max(1, offsets_max // len(partitions))
    for partition in partitions:
        start, end = starts[partition], min(ends[partition], starts[partition] + share)
        if end > start:
            wanted = OffsetRange(partition[0], topic_ids[partition], partition[1], start, end)
            for batch in read_range(wanted, ("value",), options):
                yield batch.column(0)
