"""What can be said of a query without Spark: which tables it reads, and whether it keeps state. Pure.

    query = read_query("with big as (select * from orders) select * from big join countries using (country)")
    [table.name for table in query.tables]          # orders, countries

Follows brackets, FROM, JOIN, WITH and UNION, and nothing else. Invariant: a name that a query itself defines is not a
table; `FROM` in `extract(… FROM …)` or `IS DISTINCT FROM` names none. What a SELECT reads in whatever way, by a join,
a comma or a query in a condition, is combined by it; only what UNION ALL stands between is not. Whether the rest is
right, Spark will say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from flintmq.pipeline.spec.sql_tokens import SqlError, Token, tokens, words

_BEGIN: Final = frozenset(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"))
_END_OF_FROM: Final = words(
    "WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW QUALIFY UNION EXCEPT MINUS "
    "INTERSECT SELECT"
)
_AFTER_TABLE: Final = _END_OF_FROM | words(
    "JOIN ON USING AS LEFT RIGHT FULL INNER CROSS SEMI ANTI NATURAL LATERAL TABLESAMPLE PIVOT UNPIVOT"
)
_WINDOWS: Final = frozenset(("WINDOW", "SESSION_WINDOW"))
_SETS: Final = frozenset(("UNION", "EXCEPT", "MINUS", "INTERSECT"))
AGGREGATES: Final = words(
    "ANY ANY_VALUE APPROX_COUNT_DISTINCT APPROX_PERCENTILE APPROX_TOP_K APPROX_TOP_K_ACCUMULATE "
    "APPROX_TOP_K_COMBINE ARRAY_AGG AVG BIT_AND BIT_OR BIT_XOR BITMAP_AND_AGG BITMAP_CONSTRUCT_AGG "
    "BITMAP_OR_AGG BOOL_AND BOOL_OR COLLECT_LIST COLLECT_SET CORR COUNT COUNT_IF COUNT_MIN_SKETCH COVAR_POP "
    "COVAR_SAMP EVERY FIRST FIRST_VALUE GROUPING GROUPING_ID HISTOGRAM_NUMERIC HLL_SKETCH_AGG HLL_UNION_AGG "
    "KLL_MERGE_AGG_BIGINT KLL_MERGE_AGG_DOUBLE KLL_MERGE_AGG_FLOAT KLL_SKETCH_AGG_BIGINT KLL_SKETCH_AGG_DOUBLE "
    "KLL_SKETCH_AGG_FLOAT KURTOSIS LAST LAST_VALUE LISTAGG MAX MAX_BY MEAN MEASURE MEDIAN MIN MIN_BY MODE "
    "PERCENTILE PERCENTILE_APPROX PERCENTILE_CONT PERCENTILE_DISC REGR_AVGX REGR_AVGY REGR_COUNT REGR_INTERCEPT "
    "REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY SKEWNESS SOME STD STDDEV STDDEV_POP STDDEV_SAMP STRING_AGG "
    "SUM THETA_INTERSECTION_AGG THETA_SKETCH_AGG THETA_UNION_AGG TRY_AVG TRY_SUM TUPLE_INTERSECTION_AGG_DOUBLE "
    "TUPLE_INTERSECTION_AGG_INTEGER TUPLE_SKETCH_AGG_DOUBLE TUPLE_SKETCH_AGG_INTEGER TUPLE_UNION_AGG_DOUBLE "
    "TUPLE_UNION_AGG_INTEGER VAR_POP VAR_SAMP VARIANCE"
)
"""Functions of Spark's that make one row of many."""
_DEPTH_MAX: Final = 100


class TableName(NamedTuple):
    name: str
    offset: int
    is_qualified: bool
    """`catalog.table`: one that Spark knows, and not one of the file's."""


@dataclass(frozen=True, slots=True)
class SqlQuery:
    tables: tuple[TableName, ...]
    """In the order of the text; one that is named twice is there twice."""
    combined: tuple[tuple[frozenset[str], ...], ...]
    """For each SELECT what it reads: the tables behind each name and each query in it, in small letters."""
    has_window: bool
    """A window of time."""
    has_aggregate: bool
    """GROUP BY, DISTINCT, an aggregate of everything, or sets: UNION without ALL, EXCEPT, INTERSECT."""


def read_query(sql: str) -> SqlQuery:
    """SqlError says what is wrong, and where."""
    reader = _Reader(tokens(sql))
    reader.statement()
    combined = tuple(tuple(block) for block in reader.combined if block)
    return SqlQuery(tuple(reader.tables), combined, reader.has_window, reader.has_aggregate)


class _Mode(Enum):
    QUERY = auto()
    RELATION = auto()
    """In the brackets of `from (a join b)`."""
    EXPRESSION = auto()


@dataclass
class _Scope:
    """Brackets, or the whole text."""

    is_query: bool
    blocks: list[list[frozenset[str]]] = field(default_factory=lambda: [[]])
    """What is combined, between the words that combine sets."""

    @property
    def is_whole(self) -> bool:
        """Not only a part of what is around it."""
        return self.is_query or len(self.blocks) > 1

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(name for block in self.blocks for names in block for name in names)


Known: TypeAlias = Mapping[str, frozenset[str]]
"""Names that a query defines, in small letters, and the tables behind them."""


@dataclass
class _Reader:
    tokens: list[Token]
    at: int = 0
    depth: int = 0
    tables: list[TableName] = field(default_factory=list)
    scope: _Scope = field(default_factory=lambda: _Scope(is_query=True))
    combined: list[list[frozenset[str]]] = field(default_factory=list)
    has_window: bool = False
    has_aggregate: bool = False

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    @property
    def next(self) -> Token:
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def statement(self) -> None:
        first = self.token
        if not first.kind:
            raise SqlError("there is no query", 0)
        if first.word not in _BEGIN and not first.is_sign("("):
            raise SqlError(
                f"a step is a query that begins with SELECT or WITH, not with {first.text}", first.offset
            )
        self._scan(_Mode.QUERY, {})
        self.combined += self.scope.blocks
        if self.token.is_sign(";"):
            self.at += 1
        if self.token.is_sign(")"):
            raise SqlError("a bracket is closed that was never opened", self.token.offset)
        if self.token.kind:
            raise SqlError("a step is one query; this begins another", self.token.offset)

    def _scan(self, mode: _Mode, known: Known) -> None:
        """To the end of the brackets that this is in."""
        wants_table = in_from = mode is _Mode.RELATION
        while self.token.kind and not self.token.is_sign(")"):
            token, word = self.token, self._keyword()
            if token.is_sign(";"):
                if self.depth:
                    raise SqlError("a query ends here, inside of brackets", token.offset)
                return
            if token.is_sign("("):
                self._brackets(_Mode.RELATION if wants_table else _Mode.EXPRESSION, known)
                in_from |= wants_table
                wants_table = False
            elif wants_table and not self._is_before_table(word):
                in_from = True
                wants_table = False
                self._table(known)
            elif word == "WITH" and mode is not _Mode.RELATION and self._is_with():
                mode = _Mode.QUERY
                known = self._definitions(known)
            else:
                self._note(word)
                if self._is_set(word):
                    self.scope.blocks.append([])
                if word == "SELECT":
                    mode = _Mode.QUERY
                if (
                    word in _END_OF_FROM
                    or token.is_sign("|>")
                    or (word == "LATERAL" and self.next.word == "VIEW")
                ):
                    in_from = False
                starts = word == "FROM" and mode is _Mode.QUERY and not self._is_distinct_from()
                if starts or word == "JOIN" or self._is_table(word) or (token.is_sign(",") and in_from):
                    wants_table = True
                self.at += 1
        if wants_table:
            raise SqlError("a table's name is missing here", self.token.offset)

    def _brackets(self, mode: _Mode, known: Known) -> None:
        found = self._in_brackets(mode, known)
        if found.is_whole:
            self._reads(found.tables)
        else:
            self.scope.blocks[-1] += found.blocks[0]

    def _in_brackets(self, mode: _Mode, known: Known) -> _Scope:
        opened = self.token
        around, self.scope = self.scope, _Scope(is_query=self.next.word in _BEGIN)
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise SqlError(f"brackets are nested more than {_DEPTH_MAX} deep", opened.offset)
        self.at += 1
        if self.token.word in _BEGIN - {"TABLE", "MAP", "REDUCE"}:
            mode = _Mode.QUERY
        self._scan(mode, known)
        if not self.token.is_sign(")"):
            raise SqlError("a bracket that is opened here is never closed", opened.offset)
        self.at += 1
        self.depth -= 1
        found, self.scope = self.scope, around
        if found.is_whole:
            self.combined += found.blocks
        return found

    def _reads(self, tables: frozenset[str]) -> None:
        if tables:
            self.scope.blocks[-1].append(tables)

    def _table(self, known: Known) -> None:
        first = self.token
        if first.word == "VALUES":
            self._rows(known)
            return
        if first.kind not in ("word", "quoted") or first.word in _AFTER_TABLE:
            raise SqlError(f"a table's name belongs here, not {first.text}", first.offset)
        self.at += 1
        is_qualified = False
        while self.token.is_sign(".") and self.next.kind in ("word", "quoted"):
            is_qualified = True
            self.at += 2
        is_function = self.token.is_sign("(")
        if is_function:
            return
        name = first.text.lower()
        if is_qualified or name not in known:
            self.tables.append(TableName(first.text, first.offset, is_qualified))
        if not is_qualified:
            self._reads(known.get(name, frozenset((name,))))

    def _rows(self, known: Known) -> None:
        """`VALUES (1), (2)`, to what follows it: its commas are between rows and not between tables."""
        while (
            self.token.kind
            and self.token.word not in _AFTER_TABLE
            and self.token.text not in (")", ";", "|>")
        ):
            if self.token.is_sign("("):
                self._brackets(_Mode.EXPRESSION, known)
            else:
                self.at += 1

    def _is_before_table(self, word: str) -> bool:
        if word == "STREAM":
            return self.next.is_sign("(") or (bool(self.next.word) and self.next.word not in _AFTER_TABLE)
        return word in ("LATERAL", "TABLE")

    def _is_table(self, word: str) -> bool:
        """`TABLE orders`, as a query or as what a function is given."""
        before = self.tokens[self.at - 1] if self.at else None
        return word == "TABLE" and (
            before is None
            or before.text in ("(", ",", ">")
            or before.word in ("ALL", "UNION", "EXCEPT", "INTERSECT")
        )

    def _is_with(self) -> bool:
        """Not the `with` of something else: a name and its query follow."""
        return self.next.kind in ("word", "quoted")

    def _definitions(self, known: Known) -> Known:
        """`WITH a AS (…), b AS (…)`: each knows those before it, and itself only if it is recursive."""
        self.at += 1
        is_recursive = self.token.word == "RECURSIVE" and self.next.kind in ("word", "quoted")
        self.at += is_recursive
        while True:
            name = self.token
            if name.kind not in ("word", "quoted"):
                raise SqlError("the name of a query belongs here", name.offset)
            self.at += 1
            if self.token.is_sign("("):
                self._brackets(_Mode.EXPRESSION, known)
            while self.token.kind and not self.token.is_sign("("):
                self.at += 1
            if not self.token.kind:
                raise SqlError(f"the query of {name.text} is missing: {name.text} AS (…)", name.offset)
            defined = name.text.lower()
            inside = {**known, defined: frozenset()} if is_recursive else known
            known = {**known, defined: self._in_brackets(_Mode.QUERY, inside).tables}
            if not self.token.is_sign(","):
                return known
            self.at += 1

    def _keyword(self) -> str:
        """Empty for a word behind a point: `o.from` is a column."""
        return "" if self.at and self.tokens[self.at - 1].is_sign(".") else self.token.word

    def _is_distinct_from(self) -> bool:
        before = [token.word for token in self.tokens[max(0, self.at - 2) : self.at]]
        return before in (["IS", "DISTINCT"], ["NOT", "DISTINCT"])

    def _note(self, word: str) -> None:
        is_call = self.next.is_sign("(")
        self.has_window |= is_call and word in _WINDOWS
        self.has_aggregate |= (
            (word == "GROUP" and self.next.word == "BY")
            or (word == "DISTINCT" and self.next.word != "FROM")
            or (is_call and word in AGGREGATES and not self._is_like_any(word))
            or word == "HAVING"
            or (self._is_set(word) and not (word == "UNION" and self.next.word == "ALL"))
        )

    def _is_like_any(self, word: str) -> bool:
        """`name like any ('a%', 'b%')`."""
        return word in ("ANY", "SOME") and self.at > 0 and self.tokens[self.at - 1].word in ("LIKE", "ILIKE")

    def _is_set(self, word: str) -> bool:
        """Not `* except (column)`, and not a column of this name."""
        is_columns = bool(self.at) and self.tokens[self.at - 1].is_sign("*")
        follows = self.next.is_sign("(") or self.next.word in _BEGIN | {"ALL", "DISTINCT"}
        return word in _SETS and follows and not is_columns
