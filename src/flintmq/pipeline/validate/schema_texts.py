"""Whether schemas can be read: JSON Schemas, Avro's and Protobuf's, in the file or in files of their own.

Asks the decoders themselves, which need Arrow and libraries of their formats: where these are not installed, nothing
is said, and `run` says it later. Invariant: a schema that cannot be read is a problem, and no error.
"""

from __future__ import annotations

from collections.abc import Iterator

from flintmq.errors import FlintError
from flintmq.pipeline.spec.model import Pipeline, TopicSink, TopicSource
from flintmq.pipeline.spec.parts import Decode, Encode
from flintmq.pipeline.spec.problems import Problem, Rule
from flintmq.pipeline.spec.source_map import place_of

_FORMATS = ("json", "avro", "protobuf")


def check_texts(pipeline: Pipeline) -> Iterator[Problem]:
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource):
            yield from _checked(pipeline, source.decode, f"sources.{source.name}.decode")
    for sink in pipeline.sinks.values():
        if isinstance(sink, TopicSink):
            yield from _checked(pipeline, sink.value, f"sinks.{sink.name}.value")


def _checked(pipeline: Pipeline, part: Decode | Encode, what: str) -> Iterator[Problem]:
    given = part.schema or part.schema_file
    if part.format not in _FORMATS or given is None:
        return
    try:
        from flintmq.arrow.formats import open_decoder

        open_decoder(
            str(part.format),
            schema=None if part.schema is None else str(part.schema),
            schema_file=None if part.schema_file is None else pipeline.path(part.schema_file),
            message=part.message if isinstance(part, Decode) else None,
        )
    except ImportError:
        return
    except FlintError as error:
        yield Problem(Rule.SCHEMA, place_of(given, part.place), f"{what}: {error}")
