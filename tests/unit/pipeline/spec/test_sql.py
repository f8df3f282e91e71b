"""Which tables a query reads, and what of it would keep state, without Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.pipeline.spec.sql import read_query
from flintmq.pipeline.spec.sql_tokens import SqlError


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("select * from a", "a"),
        ("SELECT * FROM a, b c, d AS e WHERE x IN (1, 2)", "a b d"),
        ("select * from a join b on a.x = b.x left outer join c using (x, y)", "a b c"),
        ("select * from a join b on a.x = f(b.x, 1), c", "a b c"),
        ("with w as (select * from a) select * from w join b", "a b"),
        ("with w (x, y) as (select 1, 2), v as (select * from w) select * from v", ""),
        ("with a as (select * from a) select * from a", "a"),
        ("with recursive r as (select 1 union all select * from r) select * from r", ""),
        ("select * from (with w as (select * from a) select * from w) x join w", "a w"),
        ("select * from (select * from a) x", "a"),
        ("select * from (select * from a) x, b, (c) where y in (1, 2)", "a b c"),
        ("select * from (a join b) join (c)", "a b c"),
        ("select (select max(x) from a) from b where exists (select 1 from c)", "a b c"),
        ("select * from a where x in (select x from b) union all select * from c", "a b c"),
        ("(select * from a) union (select * from b)", "a b"),
        ("select * from a where ((select 1) = 1 or x in ((select 1 from b) union select 2 from c))", "a b c"),
        ("select extract(year from at), trim(both 'x' from y), substring(z from 2 for 3) from a", "a"),
        ("select * from a where x is distinct from y and y is not distinct from z", "a"),
        ("select * from a lateral view explode(xs) t as x, y join b", "a b"),
        ("select * from a, lateral explode(xs) x", "a"),
        ("select * from range(10) join a", "a"),
        ("select * from values (1), (2) as t(x) join a", "a"),
        ("select * from `a` join `odd ``name`", "a|odd `name"),
        ("select o.from, o.join from a o", "a"),
        ("select 'from b', \"from c\", r'\\' from a -- from d\n /* from e /* from f */ */", "a"),
        ("from a |> where x > 1 |> join b using (x) |> select x", "a b"),
        ("from a select x, y", "a"),
        ("table a", "a"),
        ("select * from f(table(a), table b)", "a b"),
        ("select * from stream(a) join stream b", "a b"),
        ("select * from stream where x", "stream"),
        ("select count(*) filter (where x) over (partition by y order by z) from a", "a"),
        ("select * from a tablesample (10 percent) pivot (sum(x) for y in ('a', 'b'))", "a"),
        ("select x as `from` from a;", "a"),
        (
            "select case when x then 'y' end from a group by x, y having count(*) > 1 order by x, y limit 3",
            "a",
        ),
        ("select 1", ""),
    ],
)
def test_tables_are_found(sql: str, tables: str) -> None:
    wanted = tables.split("|") if "|" in tables else tables.split()
    assert [table.name for table in read_query(sql).tables] == wanted


def test_a_qualified_name_is_one_of_the_catalog_s() -> None:
    found = read_query("select * from spark_catalog.db.t join a").tables
    assert [(one.name, one.is_qualified) for one in found] == [("spark_catalog", True), ("a", False)]


@pytest.mark.parametrize(
    ("sql", "message", "at"),
    [
        ("", "no query", ""),
        ("  -- nothing\n", "no query", ""),
        ("insert into a values (1)", "begins with SELECT or WITH", "insert"),
        ("select 'abc from a", "never closed", "'abc"),
        ("select `abc from a", "never closed", "`abc"),
        ("select 1 /* abc", "never closed", "/*"),
        ("select (1 from a", "never closed", "("),
        ("select 1) from a", "never opened", ")"),
        ("select 1 from a; select 2", "one query", "select 2"),
        ("select (select 1; ) from a", "inside of brackets", ";"),
        ("select * from", "name is missing", ""),
        ("select * from where x", "belongs here, not where", "where"),
        ("select * from a join on x", "belongs here, not on", "on"),
        ("select * from 'a'", "belongs here", "'a'"),
        ("with w select 1", "query of w is missing", "w select"),
        ("with w as (select 1), select 1", "query of select is missing", "select 1"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(sql: str, message: str, at: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        read_query(sql)
    if at:
        assert sql[caught.value.offset :].startswith(at) or caught.value.offset == sql.rindex(at)


@pytest.mark.parametrize(
    ("sql", "window", "aggregate"),
    [
        ("select * from a join b", False, False),
        ("select window(at, '1 m'), count(*) from a group by 1", True, True),
        ("select session_window(at, '1 m') from a", True, False),
        ("select distinct x from a", False, True),
        ("select max(x) from a", False, True),
        ("select kurtosis(x) from a", False, True),
        ("select any(x) from a", False, True),
        ("select * from a where x like any ('a%') and y not ilike some ('b')", False, False),
        ("select x.count, `join` from a where x is distinct from y", False, False),
        ("select * from a union all select * from b", False, False),
        ("select * from a union select * from b", False, True),
        ("select * from a union distinct (select * from b)", False, True),
        ("(select * from a) intersect all select * from b", False, True),
        ("select * from a except table b", False, True),
        ("select * from a minus select * from b", False, True),
        ("select * except (x), b.* except (y) from a", False, False),
        ("select 1 from a having true", False, True),
    ],
)
def test_what_would_keep_state_is_seen(sql: str, window: bool, aggregate: bool) -> None:
    query = read_query(sql)
    assert (query.has_window, query.has_aggregate) == (window, aggregate)


@pytest.mark.parametrize(
    ("sql", "combined"),
    [
        ("select * from a", "a"),
        ("select * from a join b", "a b"),
        ("select * from A, b c", "a b"),
        ("select * from (a join b), c", "a b c"),
        ("select * from a where x in (select x from b)", "b|a b"),
        ("select * from a where f(1, exists (select 1 from b where x > 1))", "b|a b"),
        ("select * from a where not ((select max(x) from b) > 1)", "b|a b"),
        ("select * from a union all select * from b", "a|b"),
        ("(select * from a) union all (select * from b)", "a|b|a|b"),
        ("select * from (select * from a union all select * from b) u", "a|b|ab"),
        ("select * from (select * from a union all select * from b) u, c", "a|b|ab c"),
        ("select * from a where x in ((select 1 from b) union all select 2 from c)", "b|b|c|a bc"),
        ("with w as (select * from a) select * from w x join w y", "a|a a"),
        ("with w as (select * from a), v as (select * from b) select * from w, v", "a|b|a b"),
        ("with w as (select * from a) select * from w union all select * from b", "a|a|b"),
        ("with w as (select * from a) select * from b", "a|b"),
        ("from a |> union all (from b) |> join c", "b|a|b c"),
        ("select * from a, lateral explode(xs) x", "a"),
        ("select * from a join db.t", "a"),
        ("select * except (x) from a", "a"),
        ("select 1", ""),
    ],
)
def test_what_a_select_combines_is_seen(sql: str, combined: str) -> None:
    wanted = [tuple(map(frozenset, one.split())) for one in combined.split("|") if one]
    assert list(read_query(sql).combined) == wanted


WORDS = ("select", "from", "join", "with", "as", "(", ")", ",", ";", "a", ".", "*", "table", "lateral", "|>")
ODD = ("'x'", "`", "/*", "union", "where", "values", "stream", "distinct", "is")


@given(st.lists(st.sampled_from(WORDS + ODD), max_size=25))
def test_no_text_is_too_odd(words: list[str]) -> None:
    sql = " ".join(words)
    offsets = [0]
    try:
        offsets += [table.offset for table in read_query(sql).tables]
    except SqlError as error:
        offsets.append(error.offset)
    assert all(0 <= offset <= len(sql) for offset in offsets)


def test_brackets_without_end_are_refused() -> None:
    with pytest.raises(SqlError, match="deep"):
        read_query("select " + "(" * 5000)
