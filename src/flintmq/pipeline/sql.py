"""What can be said of a query without Spark: which tables it reads, and whether it keeps state. Pure.

    query = read_query("with big as (select * from orders) select * from big join countries using (country)")
    [table.name for table in query.tables]          # orders, countries

Follows brackets, FROM, JOIN and WITH, and nothing else. Invariant: a name that a query itself defines is not a table;
`FROM` in `extract(… FROM …)` or `IS DISTINCT FROM` names none. Whether the rest is right, Spark will say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from flintmq.pipeline.sql_tokens import SqlError, Token, tokens, words

_BEGIN: Final = frozenset(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"))
_END_OF_FROM: Final = words(
    "WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW QUALIFY UNION EXCEPT MINUS "
    "INTERSECT SELECT"
)
_AFTER_TABLE: Final = _END_OF_FROM | words(
    "JOIN ON USING AS LEFT RIGHT FULL INNER CROSS SEMI ANTI NATURAL LATERAL TABLESAMPLE PIVOT UNPIVOT"
)
_WINDOWS: Final = frozenset(("WINDOW", "SESSION_WINDOW"))
_AGGREGATES: Final = words(
    "COUNT SUM AVG MEAN MIN MAX FIRST LAST COLLECT_LIST COLLECT_SET APPROX_COUNT_DISTINCT MAX_BY MIN_BY "
    "STDDEV VARIANCE PERCENTILE PERCENTILE_APPROX ANY_VALUE BOOL_AND BOOL_OR COUNT_IF ARRAY_AGG"
)
_DEPTH_MAX: Final = 100


class TableName(NamedTuple):
    name: str
    offset: int
    is_qualified: bool
    """`catalog.table`: one that Spark knows, and not one of the file's."""


@dataclass(frozen=True, slots=True)
class Query:
    tables: tuple[TableName, ...]
    """In the order of the text; one that is named twice is there twice."""
    has_join: bool
    has_window: bool
    """A window of time."""
    has_aggregate: bool
    """GROUP BY, DISTINCT, or an aggregate of everything."""


def read_query(sql: str) -> Query:
    """SqlError says what is wrong, and where."""
    reader = _Reader(tokens(sql))
    reader.statement()
    return Query(tuple(reader.tables), reader.has_join, reader.has_window, reader.has_aggregate)


class _Mode(Enum):
    QUERY = auto()
    RELATION = auto()
    """In the brackets of `from (a join b)`."""
    EXPRESSION = auto()


@dataclass
class _Reader:
    tokens: list[Token]
    at: int = 0
    depth: int = 0
    tables: list[TableName] = field(default_factory=list)
    has_join: bool = False
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
        self._scan(_Mode.QUERY, frozenset())
        if self.token.is_sign(";"):
            self.at += 1
        if self.token.is_sign(")"):
            raise SqlError("a bracket is closed that was never opened", self.token.offset)
        if self.token.kind:
            raise SqlError("a step is one query; this begins another", self.token.offset)

    def _scan(self, mode: _Mode, known: frozenset[str]) -> None:
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

    def _brackets(self, mode: _Mode, known: frozenset[str]) -> None:
        opened = self.token
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

    def _table(self, known: frozenset[str]) -> None:
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
        if not is_function and (is_qualified or first.text.lower() not in known):
            self.tables.append(TableName(first.text, first.offset, is_qualified))

    def _rows(self, known: frozenset[str]) -> None:
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

    def _definitions(self, known: frozenset[str]) -> frozenset[str]:
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
            with_it = known | {name.text.lower()}
            self._brackets(_Mode.QUERY, with_it if is_recursive else known)
            known = with_it
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
        self.has_join |= word == "JOIN"
        self.has_window |= is_call and word in _WINDOWS
        self.has_aggregate |= (
            (word == "GROUP" and self.next.word == "BY")
            or (word == "DISTINCT" and self.next.word != "FROM")
            or (is_call and word in _AGGREGATES)
        )
