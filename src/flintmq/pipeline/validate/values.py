"""Values that only make sense together with others: starts, modes, keys, options, addresses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from flintmq.arrow.scan.option_list import OPTIONS
from flintmq.arrow.security_options import is_security_option
from flintmq.arrow.write.options import SINK_OPTIONS
from flintmq.client.addresses import parse_addresses
from flintmq.client.credentials.settings import SECURITY_SETTINGS, security_name
from flintmq.errors import ConfigurationError
from flintmq.pipeline.security import pipeline_security
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import FilesSource, JdbcSink, Pipeline, TopicSink, TopicSource
from flintmq.pipeline.spec.problems import Problem, Rule, did_you_mean
from flintmq.pipeline.spec.source_map import Place, place_of

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SET_BY_FIELDS: Final = {
    "kafka.bootstrap.servers": "bootstrap_servers",
    "subscribe": "topic",
    "subscribepattern": "topic",
    "assign": "topic",
    "topic": "topic",
    "startingoffsets": "start",
    "startingtimestamp": "start",
    "groupid": "group",
    "kafka.group.id": "group",
    "maxoffsetspertrigger": "max_records",
}


def check_values(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    if not _NAME.fullmatch(pipeline.name) or pipeline.name in (".", ".."):
        place = place_of(pipeline.name, pipeline.place)
        yield _wrong(
            place, f"{pipeline.name!r} is no name of a pipeline", "use letters, digits, `.`, `_` and `-`"
        )
    yield from _addresses(pipeline.bootstrap_servers, pipeline.place)
    yield from _security(pipeline)
    for name in ("sources", "sinks"):
        if not getattr(pipeline, name) and pipeline.place.line == 0:
            yield Problem(Rule.MISSING_FIELD, pipeline.place, f"the pipeline has no {name}")
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource):
            yield from _topic_source(source)
        elif (
            isinstance(source, FilesSource)
            and source.decode.format == "text"
            and source.decode.schema is not None
        ):
            place = place_of(source.decode.schema, source.decode.place)
            yield Problem(
                Rule.SCHEMA, place, "text has one column, `value`, and takes no `schema`", "leave it out"
            )
    for sink in pipeline.sinks.values():
        if isinstance(sink, TopicSink):
            yield from _topics(sink.topic, sink.place, is_one=True)
            yield from _addresses(sink.bootstrap_servers, sink.place)
            yield from _options(sink.options, [one.name for one in SINK_OPTIONS], sink.place)
        if isinstance(sink, JdbcSink) and not sink.jdbc.startswith("jdbc:"):
            yield _wrong(
                place_of(sink.jdbc, sink.place), "a database is given as jdbc:postgresql://host/name"
            )
    if pipeline.dead_letters is not None:
        yield from _topics(pipeline.dead_letters.topic, pipeline.dead_letters.place, is_one=True)
    if pipeline.trigger.every is not None and pipeline.trigger.run == "available-now":
        place = place_of(pipeline.trigger.every, pipeline.trigger.place)
        yield _wrong(place, "a pipeline that ends when all is done has no `every`", "leave one of them out")


def _topic_source(source: TopicSource) -> Iterator[Problem]:
    yield from _topics(source.topic, source.place, is_one=False)
    yield from _addresses(source.bootstrap_servers, source.place)
    yield from _options(source.options, [one.name for one in OPTIONS], source.place)
    if source.start not in ("earliest", "latest") and not _is_time(source.start):
        yield _wrong(
            place_of(source.start, source.place),
            f"`start` is earliest, latest or a time, not {str(source.start)!r}",
            "write a time with its zone, such as 2026-01-31T12:00:00Z",
        )


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _topics(topic: str, place: Place, *, is_one: bool) -> Iterator[Problem]:
    for name in [topic] if is_one else topic.split(","):
        if not _TOPIC.fullmatch(name.strip()) or name.strip() in (".", ".."):
            hint = "use letters, digits, `.`, `_` and `-`, up to 249 of them"
            yield _wrong(place_of(topic, place), f"{name.strip()!r} is no name of a topic", hint)


def _addresses(text: str | None, place: Place) -> Iterator[Problem]:
    if text is None:
        return
    try:
        parse_addresses(text)
    except ConfigurationError as error:
        yield _wrong(place_of(text, place), f"`bootstrap_servers`: {error}")


def _security(pipeline: Pipeline) -> Iterator[Problem]:
    unknown = [name for name in pipeline.security if security_name(name) is None]
    for name in unknown:
        hint = did_you_mean(name, [one.name for one in SECURITY_SETTINGS])
        yield Problem(
            Rule.UNKNOWN_FIELD,
            place_of(name, pipeline.place),
            f"`security`: there is no setting {name}",
            hint,
        )
    if not unknown:
        try:
            pipeline_security(pipeline)
        except ConfigurationError as error:
            first = next(iter(pipeline.security), None)
            yield _wrong(place_of(first, pipeline.place), f"`security`: {error}")


def _options(given: Mapping[str, str], known: Iterable[str], place: Place) -> Iterator[Problem]:
    names = {name.lower(): name for name in known}
    for name in given:
        if field := _SET_BY_FIELDS.get(name.lower()):
            yield _wrong(place_of(name, place), f"the option {name} is what `{field}` says", f"use `{field}`")
        elif name.lower() not in names and not is_security_option(name):
            hint = did_you_mean(name, names.values())
            yield Problem(Rule.UNKNOWN_FIELD, place_of(name, place), f"there is no option {name}", hint)


def _wrong(place: Place, message: str, hint: str = "") -> Problem:
    return Problem(Rule.WRONG_VALUE, place, message, hint)
