"""What a decoder is, and what it makes of values.

    FlintError
    └── ConfigurationError
        └── SchemaError          a schema that cannot be read, or has no columns: says what to do
            └── NewSchemas       values of schemas with columns that the decoder does not have yet

Invariant: a decoder gives a row for every value, in order. A value that is null gives a null row; one that cannot be
decoded gives a null row and an error, and never harms its neighbours. Everything else that goes wrong is raised: then
it is not known what the values are, and nobody may take them for bad ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from flintmq.arrow.formats.extra_fields import ExtraFields
from flintmq.errors import ConfigurationError

Values: TypeAlias = pa.Array | pa.ChunkedArray
"""Of binary."""


class SchemaError(ConfigurationError):
    """A schema that cannot be read, or from which no columns follow."""


class NewSchemas(SchemaError):
    """Values have schemas with columns that the decoder's schema lacks: `with_ids` gives a decoder that has them."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = frozenset(ids)
        super().__init__(
            f"There are columns that the table does not have, in the schemas {', '.join(map(str, sorted(self.ids)))}"
        )

    def __reduce__(self) -> tuple[type[NewSchemas], tuple[frozenset[int]]]:
        return NewSchemas, (self.ids,)


class RowError(NamedTuple):
    row: int
    message: str


class DecodedValues(NamedTuple):
    rows: pa.StructArray
    """As many as there were values, of the decoder's schema."""
    errors: list[RowError]
    """Ascending; no row twice."""
    extra: ExtraFields | None = None
    """Fields that no column takes; None if nobody asked for them, or if there are none."""


class Decoder(Protocol):
    """Can be pickled."""

    @property
    def schema(self) -> pa.Schema:
        """Every column may be null."""

    def decode(self, values: Values) -> DecodedValues: ...
