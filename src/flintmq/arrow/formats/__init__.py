"""Bytes of records as typed Arrow columns: JSON, Avro and Protobuf, alone or framed with the id of a schema.

    open_decoder               the options of a format → a decoder
    decoder                    the protocol of decoders, and what they return
    json/, avro/, protobuf/    one package for each format
    ddl                        columns as Spark writes them, as an Arrow schema and back
    framing, framed_decoder    values that begin with the id of their schema
    schema_registry            schemas by id, from a registry or a directory
    schema_merge               several schemas as one, and rows as those of a wider schema
    column_builder             decoded Python objects as Arrow columns

Knows neither topics nor Spark nor tables. Needs pyarrow, and fastavro or protobuf for their formats, so only callers
that need a decoder import it.
"""

from flintmq.arrow.formats.decoder import DecodedValues, Decoder, NewSchemas, RowError, SchemaError
from flintmq.arrow.formats.open_decoder import open_decoder

__all__ = ["DecodedValues", "Decoder", "NewSchemas", "RowError", "SchemaError", "open_decoder"]
