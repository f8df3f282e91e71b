"""Chooses how the values of a topic become columns of its table, once, and keeps that with the table.

    decoding.first(topic)       for a table that is not there yet
    decoding.of(state)          for one that is

Invariant: format and target columns of a table never change; schemas may grow, and never shrink: columns that a later
schema does not name are decoded as before. The text that is kept with the table says all that it takes to
decode records in the same way again, except passwords.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
import pyarrow as pa

from flintmq.arrow.formats import ddl
from flintmq.arrow.formats.decoder import SchemaError
from flintmq.arrow.formats.extra_fields import Extras
from flintmq.arrow.formats.json.inference import common_columns
from flintmq.arrow.formats.open_decoder import json_columns
from flintmq.arrow.formats.schema_merge import paths, plain, unify
from flintmq.arrow.value_decoding import ValueDecoder, infer_columns, is_inferred, value_subject
from flintmq.client.cluster import ClusterClient
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import ConfigurationError
from flintmq.lake.syncing.options import JSON, Decoding, Evolve, SyncOptions
from flintmq.lake.syncing.row_decoder import ORIGIN, RowDecoder
from flintmq.lake.tables.schema_evolution import merge
from flintmq.lake.tables.table import TableState

DECODING_PROPERTY: Final = "flintmq.shape"


class TableDecoding:
    """Of one topic."""

    def __init__(
        self, topic: str, options: SyncOptions, client: ClusterClient, *, sample_offsets_max: int
    ) -> None:
        self._topic = topic
        self._options = options
        self._client = client
        self._sample_offsets_max = sample_offsets_max
        self._asked = options.decoding
        self._current = options.decoding
        self._row_decoder: RowDecoder | None = None
        self._kept: Decoding | None = None
        """Of the table, when the row decoder was made."""
        self._learned: set[str] = set()

    @property
    def kept(self) -> Decoding:
        """What is kept with the table."""
        return _without_secrets(self._current)

    @property
    def text(self) -> str:
        return decoding_text(self._current)

    def is_new(self, path: str) -> bool:
        """Whether no record before those that are new now had this field: it was added when it was first met."""
        return self._current.registry is not None or path in self._learned

    def first(self, topic: TopicMetadata) -> RowDecoder:
        if self._row_decoder is None:
            asked = self._asked
            if is_inferred(
                asked.kind,
                schema=asked.schema,
                schema_file=asked.schema_file,
                registry=asked.registry,
            ):
                self._current = replace(asked, schema=self._inferred(topic))
            elif not asked.is_raw and not (asked.schema or asked.schema_file or asked.registry):
                raise ConfigurationError(
                    f"--decode {asked.kind} requires a schema: add --schema FILE or --registry URL"
                )
            self._row_decoder = self._made()
        return self._row_decoder

    def of(self, state: TableState) -> RowDecoder:
        kept, asked = kept_decoding(state), self._asked
        if self._options.is_decoding_kept:
            asked = Decoding(kind=kept.kind)
        if kept.kind != asked.kind or asked.into not in (None, kept.into):
            raise ConfigurationError(
                f"the table of {self._topic} was made with {_named(kept)} and cannot continue with {_named(asked)}: "
                "leave --decode and --into out, sync to another directory with --to, or change the table with "
                "flintmq lake rebuild"
            )
        self._asked = asked = replace(asked, into=kept.into)
        if asked.rest and kept.rest and asked.rest != kept.rest:
            raise ConfigurationError(
                f"the table of {self._topic} keeps fields without a column in {kept.rest}, and cannot keep them in "
                f"{asked.rest} from now on; leave --rest out"
            )
        # Somebody else may have changed the table's columns since: then these are to be read, too.
        if self._row_decoder is None or kept not in (self._kept, self.kept):
            self._current = self._joined(kept)
            self._row_decoder = self._made()
        self._kept = kept
        return self._row_decoder

    def learn(self, schema_ids: Iterable[int]) -> None:
        """The next row decoder has the columns of these schemas of the registry too."""
        known = self._current.ids
        self._current = replace(self._current, ids=(*known, *sorted(set(schema_ids) - set(known))))
        self._row_decoder = self._made()

    def learn_columns(self, columns: Iterable[pa.Schema]) -> None:
        """The next row decoder has these columns of JSON too."""
        new: pa.Schema | None = None
        for one in columns:
            new = common_columns(new, one)
        assert new is not None
        assert self._current.schema is not None
        known = json_columns(self._current.schema)
        self._learned.update(set(paths(new)).difference(paths(known)))
        self._current = replace(self._current, schema=ddl.write(unify(known, new)))
        self._row_decoder = self._made()

    def _joined(self, kept: Decoding) -> Decoding:
        """What was asked for, and what the table has beyond that."""
        asked = self._asked
        rest = asked.rest or kept.rest
        if not (asked.schema or asked.schema_file or asked.registry):
            # Not even a registry's password is said anew: it goes on as it was begun.
            return replace(kept, rest=rest)
        if asked.registry is not None:
            return replace(asked, subject=asked.subject or kept.subject, ids=kept.ids)
        if asked.kind == JSON and asked.schema and kept.schema and not kept.registry:
            return replace(asked, schema=_joined_columns(kept.schema, asked.schema), rest=rest)
        return replace(asked, rest=rest)

    def _made(self) -> RowDecoder:
        decoding, evolve = self._current, self._options.evolve
        if decoding.is_raw:
            return RowDecoder()
        if decoding.registry is not None and decoding.subject is None:
            self._current = decoding = replace(decoding, subject=value_subject(self._topic))
        if decoding.schema_file is not None:
            decoder = _opened(decoding)
            self._current = replace(decoding, schema_file=None, descriptors=decoder.files)
            return RowDecoder(ValueDecoder(decoder, decoding.into))
        return row_decoder_of(decoding, is_inferred=evolve is Evolve.ADD)

    def _inferred(self, topic: TopicMetadata) -> str:
        """Return the columns of the first records, as DDL."""
        # A sample does without the records that retention deletes meanwhile.
        options = replace(self._options.source, fail_on_loss=False)
        found = infer_columns(self._client, [topic], options, offsets_max=self._sample_offsets_max)
        if found is None:
            raise ConfigurationError(
                f"{self._topic} is empty: name the columns with --schema, such as 'id long, name string'"
            )
        return found


def row_decoder_of(decoding: Decoding, *, is_inferred: bool = False) -> RowDecoder:
    """As the text that is kept with a table says; whoever reads its rows again shapes them so.

    With `is_inferred` columns are inferred for fields that have none.
    """
    if decoding.is_raw:
        return RowDecoder()
    return RowDecoder(ValueDecoder(_opened(decoding, is_inferred=is_inferred), decoding.into))


def _opened(decoding: Decoding, *, is_inferred: bool = False) -> Any:
    from flintmq.arrow.formats import open_decoder

    extras = Extras(are_counted=True, column=decoding.rest)
    if is_inferred and decoding.kind == JSON and decoding.schema is not None:
        taken = [
            one.lower() for one in (*json_columns(decoding.schema).names, *filter(None, [decoding.rest]))
        ]
        beside = ORIGIN if decoding.into is None else ()
        extras = extras._replace(are_inferred=True, reserved=frozenset((*taken, *beside)))
    return open_decoder(
        decoding.kind,
        schema=decoding.descriptors or decoding.schema,
        schema_file=decoding.schema_file,
        message=decoding.message,
        registry=decoding.registry,
        subject=decoding.subject,
        ids=decoding.ids,
        extras=extras,
    )


def _joined_columns(kept: str, asked: str) -> str:
    """Return the columns of both; `kept` itself if there are no others. Whether one may be null is as said last."""
    first, last = json_columns(kept), json_columns(asked)
    try:
        both = unify(first, last)
    except SchemaError:
        merge(plain(first), plain(last))  # says what tables allow
        raise
    fields = []
    for one in both:
        at = last.get_field_index(one.name)
        fields.append(one.with_nullable(at < 0 or last.field(at).nullable))
    joined = pa.schema(fields)
    return kept if joined.equals(first) else ddl.write(joined)


def decoding_text(decoding: Decoding) -> str:
    """What is kept with a table."""
    return msgspec.json.encode(_without_secrets(decoding)).decode()


def kept_decoding(state: TableState) -> Decoding:
    """How the rows of a table were made."""
    text = state.properties.get(DECODING_PROPERTY)
    return Decoding() if text is None else msgspec.json.decode(text, type=Decoding)


def _named(decoding: Decoding) -> str:
    where = f" --into {decoding.into}" if decoding.into else ""
    return f"--decode {decoding.kind}{where}"


def _without_secrets(decoding: Decoding) -> Decoding:
    """Without the registry's password, and without the place of a file that is of no use elsewhere."""
    return replace(decoding, registry=_without_password(decoding.registry), schema_file=None)


def _without_password(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
