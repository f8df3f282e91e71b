"""Values that begin with the id of their schema: each is decoded by its own, and all become rows of one schema.

    decoder = FramedDecoder(schemas, ids=schemas.ids_of("orders-value"))
    try:
        decoder.decode(values)
    except NewSchemas as new:
        decoder = decoder.with_ids(new.ids)         # which has more columns

Invariant: no column of a value is left out. A value whose schema has columns that the decoder lacks is NewSchemas,
before anything is decoded; a value whose id the source does not know is bad, and so is one without a frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from flintmq.arrow.formats.avro.decoder import AvroDecoder
from flintmq.arrow.formats.decoder import DecodedValues, Decoder, NewSchemas, RowError, SchemaError, Values
from flintmq.arrow.formats.extra_fields import PASSED_OVER, ExtraFields, Extras, merged
from flintmq.arrow.formats.framing import NO_FRAME, NO_VALUE, bodies_of, ids_of
from flintmq.arrow.formats.json import schema as json_schema
from flintmq.arrow.formats.json.decoder import JsonDecoder
from flintmq.arrow.formats.protobuf.framed_decoder import IndexedDecoder
from flintmq.arrow.formats.schema_merge import conform, fits, unify
from flintmq.arrow.formats.schema_registry import RegisteredSchema, SchemaSource, SchemaType


class FramedDecoder:
    def __init__(
        self,
        schemas: SchemaSource,
        ids: Iterable[int],
        *,
        kind: SchemaType | None = None,
        message: str | None = None,
        extras: Extras = PASSED_OVER,
    ) -> None:
        """`kind`: what all must be, if it matters; `message`: which one Protobuf's values are, if not the first.

        `extras` is about JSON: what Avro and Protobuf write is in their schemas.
        """
        self._schemas = schemas
        self._kind = kind
        self._message = message
        self._extras = extras
        self._decoders: dict[int, Decoder | None] = {}
        self._ids = tuple(dict.fromkeys(ids))
        found = [one for one in map(self._decoder, self._ids) if one is not None]
        if not found:
            raise SchemaError(
                "No schema is there whose columns the table could have. Name a subject that has one"
            )
        self._schema = unify(*(one.schema for one in found))

    def __getstate__(self) -> dict[str, object]:
        known = {schema_id: one for schema_id, one in self._decoders.items() if one is not None}
        return {**self.__dict__, "_decoders": known}

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def with_ids(self, ids: Iterable[int]) -> FramedDecoder:
        """One that has the columns of these schemas too; columns that are there keep their places."""
        return FramedDecoder(
            self._schemas,
            (*self._ids, *sorted(set(ids))),
            kind=self._kind,
            message=self._message,
            extras=self._extras,
        )

    def decode(self, values: Values) -> DecodedValues:
        values = _one_array(values)
        ids = ids_of(values)
        there = [int(one) for one in np.unique(ids)]
        decoders = {one: self._decoder(one) for one in there if one not in (NO_FRAME, NO_VALUE)}
        self._check_columns(decoders)
        kind = pa.struct(list(self._schema))
        parts: list[pa.Array] = []
        places = np.empty(len(ids), np.int64)
        errors: list[RowError] = []
        extra: list[ExtraFields | None] = []
        size = 0
        for schema_id in there:
            rows = np.flatnonzero(ids == schema_id)
            places[rows] = np.arange(size, size + len(rows))
            size += len(rows)
            decoder = decoders.get(schema_id)
            if decoder is None:
                parts.append(pa.nulls(len(rows), kind))
                if schema_id != NO_VALUE:
                    errors += [RowError(int(row), _why(schema_id)) for row in rows]
                continue
            chosen = values if len(rows) == len(values) else values.take(pa.array(rows))
            decoded = decoder.decode(bodies_of(chosen))
            parts.append(conform(decoded.rows, kind))
            extra.append(decoded.extra)
            errors += [
                RowError(int(rows[row]), f"schema {schema_id}: {message}") for row, message in decoded.errors
            ]
        together = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
        in_order = together if len(parts) <= 1 else together.take(pa.array(places))
        return DecodedValues(in_order, sorted(errors), merged(extra))

    def _check_columns(self, decoders: Mapping[int, Decoder | None]) -> None:
        new = [
            schema_id
            for schema_id, one in decoders.items()
            if one is not None and schema_id not in self._ids and not fits(one.schema, self._schema)
        ]
        if new:
            raise NewSchemas(new)

    def _decoder(self, schema_id: int) -> Decoder | None:
        """None if nobody knows the schema."""
        if self._decoders.get(schema_id) is None:
            found = self._schemas.by_id(schema_id)
            self._decoders[schema_id] = None if found is None else self._opened(schema_id, found)
        return self._decoders[schema_id]

    def _opened(self, schema_id: int, found: RegisteredSchema) -> Decoder:
        if self._kind not in (None, found.kind):
            raise SchemaError(
                f"The schema {schema_id} is {found.kind}, not {self._kind}. Say {found.kind} for these records"
            )
        try:
            if found.kind is SchemaType.AVRO:
                return AvroDecoder(found.text, found.references)
            if found.kind is SchemaType.JSON:
                return JsonDecoder(json_schema.parse(found.text, found.references), self._extras)
            return IndexedDecoder(found.text, found.references, message=self._message)
        except SchemaError as why:
            raise SchemaError(f"The schema {schema_id} cannot be used: {why}") from why


def _why(schema_id: int) -> str:
    if schema_id == NO_FRAME:
        return "the value does not begin with a zero and the id of a schema"
    return f"there is no schema with the id {schema_id}"


def _one_array(values: Values) -> pa.BinaryArray:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks)
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())
