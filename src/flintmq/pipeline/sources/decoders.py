"""What a source says of its values, as a decoder; on the driver, before anything runs.

Invariant: a stream goes on with the columns that it began with. What was inferred from a sample is therefore kept
with the checkpoint, by the source's name, and taken from there ever after. Needs a broker for a sample only.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pyarrow as pa

from flintmq.arrow.cluster_client import client_of
from flintmq.arrow.formats import Decoder, ddl, open_decoder
from flintmq.arrow.formats.json.inference import infer
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.range_reader import read_range
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets
from flintmq.errors import ConfigurationError
from flintmq.pipeline.sources.text_decoders import CsvDecoder, TextDecoder
from flintmq.pipeline.spec.model import Pipeline, TopicSource


def decoder_of(
    pipeline: Pipeline, source: TopicSource, options: SourceOptions, kept: MutableMapping[str, Any]
) -> Decoder:
    """`kept` are the schemas that earlier runs inferred, by source; what is inferred now is added."""
    decode = source.decode
    schema = None if decode.schema is None else str(decode.schema)
    if decode.format == "text":
        return TextDecoder()
    if decode.format == "csv":
        assert schema is not None
        return CsvDecoder.of(ddl.parse(schema), decode.options)
    if decode.format == "json" and not (schema or decode.schema_file or decode.registry):
        if source.name not in kept:
            kept[source.name] = ddl.write(_inferred(source, options))
        schema = kept[source.name]
    subject = decode.subject
    if decode.registry is not None and subject is None:
        if "," in source.topic:
            raise ConfigurationError(f"`{source.name}` reads several topics: name the registry's `subject`")
        subject = f"{source.topic.strip()}-value"
    registry = decode.registry
    if registry is not None and "://" not in registry:
        registry = pipeline.path(registry)
    return open_decoder(
        decode.format,
        schema=schema,
        schema_file=None if decode.schema_file is None else pipeline.path(decode.schema_file),
        message=decode.message,
        registry=registry,
        subject=subject,
    )


def _inferred(source: TopicSource, options: SourceOptions) -> pa.Schema:
    values = pa.chunked_array(_sample(source, options), pa.binary())
    if not len(values):
        raise ConfigurationError(
            f"{source.topic} is empty, so its columns cannot be inferred; "
            "give a schema, such as `id long, name string`"
        )
    return infer(values)


def _sample(source: TopicSource, options: SourceOptions) -> Iterator[pa.Array]:
    """From the start of each partition."""
    with client_of(options) as client:
        topics = [client.topic(name.strip()) for name in source.topic.split(",")]
        places = {(topic.name, index): topic.id for topic in topics for index in sorted(topic.partitions)}
        starts = offsets(client, list(places), EARLIEST)
        ends = offsets(client, list(places), LATEST, read_committed=options.read_committed)
    share = max(1, source.decode.sample // len(places))
    for place, topic_id in places.items():
        end = min(ends[place], starts[place] + share)
        if end > starts[place]:
            for batch in read_range(
                OffsetRange(place[0], topic_id, place[1], starts[place], end), ("value",), options
            ):
                yield batch.column(0)
