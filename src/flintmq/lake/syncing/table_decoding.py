"""Chooses how the values of a topic become columns of its table, once, and keeps that with the table.

    decoding.first(topic)       for a table that is not there yet
    decoding.of(state)          for one that is

Invariant: format and target columns of a table never change; schemas may grow. The text that is kept with the table
says all that it takes to decode records in the same way again, except passwords.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from flintmq.arrow.value_decoding import ValueDecoder, infer_columns, is_inferred, value_subject
from flintmq.client.cluster import ClusterClient
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import ConfigurationError
from flintmq.lake.syncing.options import Decoding, SyncOptions
from flintmq.lake.syncing.row_decoder import RowDecoder
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
        self._decoding = options.decoding
        self._row_decoder: RowDecoder | None = None

    @property
    def text(self) -> str:
        """What is kept with the table."""
        return decoding_text(self._decoding)

    def first(self, topic: TopicMetadata) -> RowDecoder:
        if self._row_decoder is None:
            asked = self._decoding
            if is_inferred(
                asked.kind,
                schema=asked.schema,
                schema_file=asked.schema_file,
                registry=asked.registry,
            ):
                self._decoding = replace(asked, schema=self._inferred(topic))
            self._row_decoder = self._made()
        return self._row_decoder

    def of(self, state: TableState) -> RowDecoder:
        kept, asked = kept_decoding(state), self._decoding
        if (kept.kind, kept.into) != (asked.kind, asked.into):
            raise ConfigurationError(
                f"the table of {self._topic} holds {_named(kept)}, and cannot hold {_named(asked)} from now on; "
                "say it as it was, or sync to another place with --to"
            )
        if self._row_decoder is None:
            if not (asked.schema or asked.schema_file or asked.registry):
                # Not even a registry's password is said anew: it goes on as it was begun.
                self._decoding = kept
            elif asked.registry is not None:
                self._decoding = replace(asked, subject=asked.subject or kept.subject, ids=kept.ids)
            self._row_decoder = self._made()
        return self._row_decoder

    def learn(self, schema_ids: Iterable[int]) -> None:
        """The next row decoder has the columns of these schemas of the registry too."""
        known = self._decoding.ids
        self._decoding = replace(self._decoding, ids=(*known, *sorted(set(schema_ids) - set(known))))
        self._row_decoder = self._made()

    def _made(self) -> RowDecoder:
        decoding = self._decoding
        if decoding.is_raw:
            return RowDecoder()
        if decoding.registry is not None and decoding.subject is None:
            self._decoding = decoding = replace(decoding, subject=value_subject(self._topic))
        if decoding.schema_file is not None:
            decoder = _opened(decoding)
            self._decoding = replace(decoding, schema_file=None, descriptors=decoder.files)
            return RowDecoder(ValueDecoder(decoder, decoding.into))
        return row_decoder_of(decoding)

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


def row_decoder_of(decoding: Decoding) -> RowDecoder:
    """As the text that is kept with a table says; whoever reads its rows again shapes them so."""
    return RowDecoder() if decoding.is_raw else RowDecoder(ValueDecoder(_opened(decoding), decoding.into))


def _opened(decoding: Decoding) -> Any:
    from flintmq.arrow.formats import open_decoder

    return open_decoder(
        decoding.kind,
        schema=decoding.descriptors or decoding.schema,
        schema_file=decoding.schema_file,
        message=decoding.message,
        registry=decoding.registry,
        subject=decoding.subject,
        ids=decoding.ids,
    )


def decoding_text(decoding: Decoding) -> str:
    """What is kept with a table."""
    kept = replace(decoding, registry=_without_password(decoding.registry), schema_file=None)
    return msgspec.json.encode(kept).decode()


def kept_decoding(state: TableState) -> Decoding:
    """How the rows of a table were made."""
    text = state.properties.get(DECODING_PROPERTY)
    return Decoding() if text is None else msgspec.json.decode(text, type=Decoding)


def _named(decoding: Decoding) -> str:
    where = f" --into {decoding.into}" if decoding.into else ""
    return f"--decode {decoding.kind}{where}"


def _without_password(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
