"""Avro records as rows: each value is one record, written with the decoder's schema and nothing else around it.

Invariant: a value is a row if it is exactly one record; bytes behind it make it bad. Objects are read by fastavro.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType

from flintmq.arrow.formats.avro.schema import columns_of, without_logical_types
from flintmq.arrow.formats.column_builder import decode_each
from flintmq.arrow.formats.decoder import DecodedValues, SchemaError, Values

_REFUSALS: Final = (EOFError, ValueError, IndexError, OverflowError, MemoryError, RecursionError, KeyError)


class AvroDecoder:
    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        """`references` are schemas of types that the schema names, in an order in which each knows those before."""
        self._text = text
        self._references = dict(references or {})
        self._schema, named = _parsed(text, self._references, logical=True)
        self._columns = columns_of(self._schema, named)
        self._written, _ = _parsed(text, self._references, logical=False)

    def __reduce__(self) -> tuple[type[AvroDecoder], tuple[str, dict[str, str]]]:
        return AvroDecoder, (self._text, self._references)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(list(self._columns.type))

    def decode(self, values: Values) -> DecodedValues:
        return decode_each(self._columns, values, self._read, _REFUSALS)

    def _read(self, data: bytes) -> Any:
        file = BytesIO(data)
        try:
            record = schemaless_reader(
                file, self._written, None, return_record_name=True, return_named_type=True
            )
        except EOFError:
            raise ValueError("the bytes end before the Avro record is complete") from None
        except IndexError:
            raise ValueError(
                "the bytes are not an Avro record of the schema: they choose a type of a union, or a symbol of an "
                "enum, that it does not have"
            ) from None
        if (end := file.tell()) != len(data):
            raise ValueError(f"{len(data) - end} bytes are left after the Avro record")
        return record


def _parsed(text: str, references: Mapping[str, str], *, logical: bool) -> tuple[Any, dict[str, Any]]:
    named: dict[str, Any] = {}
    try:
        for one in (*references.values(), text):
            schema = json.loads(one)
            if not logical:
                schema = without_logical_types(schema)
            parsed = parse_schema(schema, named_schemas=named)
    except ValueError as why:
        raise SchemaError(f"The Avro schema is no JSON: {why}") from None
    except UnknownType as why:
        raise SchemaError(f"The Avro schema names a type that is not there: {why}") from None
    except (SchemaParseException, KeyError, TypeError) as why:
        raise SchemaError(f"The Avro schema is not valid: {why}") from None
    return parsed, named
