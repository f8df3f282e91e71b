"""Bytes of records as typed Arrow columns: JSON, Avro and Protobuf, alone or framed with the id of a schema.

    opening      what a user says of a format → a decoder
    decoder      what a decoder is, and what it makes of values
    json_…       JSON; schemas as DDL (`ddl`), as JSON Schema, or inferred
    avro_…       Avro
    proto_…      Protobuf, from descriptors or from the text of `.proto` files
    framed       values that begin with the id of their schema; schemas from a registry or a folder (`registry`)
    schemas      schemas that become one, and rows that become those of a wider schema

Knows neither topics nor Spark nor tables. Needs pyarrow, and fastavro or protobuf for their formats: only who asks
for a decoder imports this.
"""

from flintmq.arrow.formats.decoder import DecodedValues, Decoder, NewSchemas, RowError, SchemaError
from flintmq.arrow.formats.open_decoder import open_decoder

__all__ = ["DecodedValues", "Decoder", "NewSchemas", "RowError", "SchemaError", "open_decoder"]
