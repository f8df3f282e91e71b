"""What is wrong is told before anything runs, at its place in the file."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.pipeline import PipelineError
from flintmq.pipeline.runtime.failure_cause import cause_of
from flintmq.pipeline.runtime.runner import PipelineFailed
from support.pipeline.pipelines import Flow, as_records
from support.spark.spark_topics import Topics


def _told(flow: Flow) -> list[str]:
    """`line:column: message` of each problem."""
    with pytest.raises(PipelineError) as caught:
        flow.run()
    return [f"{one.place.line}:{one.place.column}: {one.message}" for one in caught.value.problems]


def _place(flow: Flow, text: str) -> str:
    before = flow.file.read_text().partition(text)[0]
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def test_everything_that_spark_refuses_has_its_place(flow: Flow, topics: Topics, topic: str) -> None:
    topics.create(topic)
    flow.code(
        "steps.py",
        "def broken(orders):\n    return orders.selekt('id')\n\ndef number(orders):\n    return 1\n",
    )
    flow.write(
        f"""\
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long, name string, tags array<string>"}}}}
        steps:
          column: {{sql: "select idd from orders"}}
          kinds:
            sql: |
              select id,
                     tags + 1
              from orders
          syntax: {{sql: "select id from orders whre id > 1"}}
          double: {{sql: "select a.id, b.id from orders a join orders b on a.id = b.id"}}
          condition: {{sql: "select * from orders", expect: {{odd: {{that: "id % 2", otherwise: drop}}}}}}
          origin: {{sql: "select id from orders", expect: {{odd: {{that: "id > 2", otherwise: dead-letter}}}}}}
          state:
            sql: select count(*) as n, 'x' as _topic, 0 as _partition, 0 as _offset from orders
            expect: {{many: {{that: "n > 2", otherwise: dead-letter}}}}
          broken: {{python: "steps.py:broken", from: orders}}
          number: {{python: "steps.py:number", from: orders}}
          keys: {{from: orders, dedup: {{keys: [idd]}}}}
          after: {{sql: "select * from column"}}
        sinks:
          a: {{from: after, topic: {topic}.out}}
          b: {{from: kinds, console: 1}}
          c: {{from: syntax, console: 1}}
          d: {{from: double, console: 1}}
          e: {{from: condition, console: 1}}
          f: {{from: origin, console: 1}}
          g: {{from: state, console: 1, mode: complete}}
          h: {{from: broken, console: 1}}
          i: {{from: number, console: 1}}
          j: {{from: keys, console: 1}}
        dead_letters: {topic}.dead
        """
    )
    told = "\n".join(_told(flow))
    for where, message in (
        (
            "idd from",
            "the SQL of `column`: A column, variable, or function parameter with name `idd` cannot be",
        ),
        ("tags + 1", 'the SQL of `kinds`: Cannot resolve "(tags + 1)"'),
        ("id > 1", "the SQL of `syntax`: Syntax error at or near 'id'"),
        ("select a.id", "the SQL of `double` gives two columns `id`"),
        ("id % 2", "the expectation `condition.odd` is a condition, and this gives bigint"),
        ("dead-letter}}}\n  state", "`origin.odd`: rows do not say which record they come from"),
        ("dead-letter}}\n  broken", "`state.many`: rows of `state` come from its state"),
        ("steps.py:broken", "`broken`: line 2: "),
        ("steps.py:number", "`number`: steps.py:number returned int and no DataFrame"),
        ("idd]}}", "`keys` has the key `idd`, which what it reads does not have"),
    ):
        assert f"{_place(flow, where)}: {message}" in told
    assert told.count("\n") == 9


def test_sinks_that_cannot_be_written_are_told_before_a_row_is_read(
    flow: Flow, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    (flow.folder / "file").write_text("in the way")
    flow.write(
        f"""\
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long"}}}}
          again: {{topic: {topic}, decode: text, stream: false}}
        sinks:
          table: {{from: orders, table: file/table}}
          static: {{from: again, topic: {topic}.out}}
          key: {{from: orders, topic: {topic}.out, key: idd}}
          text: {{from: orders, topic: {topic}.out, value: text}}
        """
    )
    told = "\n".join(_told(flow))
    for expected in (
        "`static` writes `again`, which is no stream",
        "`key`: `orders` has no column `idd`",
        "text writes the column `value`, and `orders` has id",
        "the sink `table`:",
    ):
        assert expected in told


_FAILURES = {
    "expect": r"`big` expects small: id < 3; .*-0 offset 3 does not",
    "decode": r"`orders`: .*-0 offset 5 cannot be decoded: .*",
}


@pytest.mark.parametrize("step", _FAILURES)
def test_what_may_not_be_fails_the_run_and_names_the_record(
    flow: Flow, topics: Topics, topic: str, step: str
) -> None:
    topics.create(topic)
    topics.write(topic, as_records([*({"id": n} for n in range(5)), b"bad"]))
    limit = 3 if step == "expect" else 10
    schema = "id long"
    otherwise = "drop" if step == "expect" else "fail"
    flow.write(
        f"""
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "{schema}", otherwise: {otherwise}}}}}
        steps:
          big: {{sql: "select * from orders", expect: {{small: "id < {limit}"}}}}
        sinks:
          out: {{from: big, topic: {topic}.out}}
        """
    )
    with pytest.raises(PipelineFailed, match=rf"the sink `out` of .* failed: {_FAILURES[step]}"):
        flow.run()
    assert flow.out(f"{topic}.out") == []


def test_the_cause_of_a_failure_is_what_the_user_can_change() -> None:
    worker = (
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed\n"
        'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n'
        "flintmq.lake.store.store.StoreError: a file for /lake cannot be written: No space left on device\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner"
    )
    assert cause_of(RuntimeError(worker)) == "a file for /lake cannot be written: No space left on device"
    bridge = (
        "py4j.protocol.Py4JJavaError: An error occurred while calling o275.getResult.\n"
        "Caused by: org.apache.spark.SparkException: Job aborted\n\tat x\n"
        "Caused by: java.io.IOException: the disk is gone\n"
    )
    assert cause_of(RuntimeError(bridge)) == "the disk is gone"
    assert cause_of(RuntimeError("plain")) == "plain"
    query = RuntimeError("Query [id = 1, runId = 2] terminated with exception: the worker crashed")
    assert cause_of(query) == "the worker crashed"


def test_what_java_says_to_a_function_of_python_is_the_cause() -> None:
    proxy = (
        "Query [id = 1] terminated with exception: An error occurred in the user provided function in foreach "
        "batch sink. Reason: An exception was raised by the Python Proxy. Return Message: "
        "Traceback (most recent call last):\n"
        '  File "sinks.py", line 141, in __call__\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o63.save.\n"
        ": {}\n\tat java.sql.DriverManager.getDriver\n"
    )
    told = cause_of(RuntimeError(proxy.format("java.sql.SQLException: No suitable driver")))
    assert told.startswith("SQLException: No suitable driver; Spark has no such class: give it the jar")
    told = cause_of(RuntimeError(proxy.format("java.lang.ClassNotFoundException: org.postgresql.Driver")))
    assert told.startswith("ClassNotFoundException: org.postgresql.Driver; Spark has no such class")
    refused = "org.postgresql.util.PSQLException: Connection to localhost:1 refused."
    assert cause_of(RuntimeError(proxy.format(refused))) == refused.removeprefix("org.postgresql.util.")
    wrapped = "org.apache.spark.SparkException: Job aborted\nCaused by: java.io.IOException: the disk is gone"
    assert cause_of(RuntimeError(proxy.format(wrapped))) == "the disk is gone"


def test_an_error_that_only_a_deeper_cause_tells_is_told() -> None:
    query = RuntimeError(
        "Query [id = 1] terminated with exception: driver worker exited unexpectedly (crashed)"
    )
    query.__cause__ = RuntimeError(
        "org.apache.spark.SparkException: driver worker exited unexpectedly (crashed)"
    )
    query.__cause__.__cause__ = RuntimeError(
        "[STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE] Streaming Runner initialization failed, returned -2. "
        'Cause: Traceback (most recent call last):\n  File "rules.py", line 11, in init\n'
        "ValueError: a limit is missing\n SQLSTATE: XXKST"
    )
    assert cause_of(query) == "ValueError: a limit is missing"
