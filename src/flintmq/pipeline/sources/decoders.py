"""What a source says of its values, as a decoder; on the driver, before anything runs.

Invariant: a stream goes on with the columns that it began with. What was inferred from a sample is therefore kept
with the checkpoint, by the source's name, and taken from there ever after. Needs a broker for a sample only.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from flintmq.arrow.cluster_client import client_of
from flintmq.arrow.formats import Decoder, ddl, open_decoder
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.value_decoding import ValueDecoder, infer_columns, is_inferred, value_subject
from flintmq.errors import ConfigurationError
from flintmq.pipeline.sources.text_decoders import CsvDecoder, TextDecoder
from flintmq.pipeline.spec.model import Pipeline, TopicSource


def value_decoder_of(
    pipeline: Pipeline, source: TopicSource, options: SourceOptions, kept: MutableMapping[str, Any]
) -> ValueDecoder:
    """Open the decoder of a source. `kept` are schemas that earlier runs inferred, by source; new ones are added."""
    into = None if source.decode.into is None else str(source.decode.into)
    return ValueDecoder(_decoder_of(pipeline, source, options, kept), into)


def _decoder_of(
    pipeline: Pipeline, source: TopicSource, options: SourceOptions, kept: MutableMapping[str, Any]
) -> Decoder:
    decode = source.decode
    schema = None if decode.schema is None else str(decode.schema)
    if decode.format == "text":
        return TextDecoder()
    if decode.format == "csv":
        assert schema is not None
        return CsvDecoder.of(ddl.parse(schema), decode.options)
    if is_inferred(decode.format, schema=schema, schema_file=decode.schema_file, registry=decode.registry):
        if source.name not in kept:
            kept[source.name] = _inferred(source, options)
        schema = kept[source.name]
    subject = decode.subject
    if decode.registry is not None and subject is None:
        if "," in source.topic:
            raise ConfigurationError(f"`{source.name}` reads several topics: name the registry's `subject`")
        subject = value_subject(source.topic.strip())
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


def _inferred(source: TopicSource, options: SourceOptions) -> str:
    with client_of(options) as client:
        topics = [client.topic(name.strip()) for name in source.topic.split(",")]
        found = infer_columns(client, topics, options, offsets_max=source.decode.sample)
    if found is None:
        raise ConfigurationError(
            f"{source.topic} is empty, so its columns cannot be inferred; "
            "give a schema, such as `id long, name string`"
        )
    return found
