"""Jobs over SASL_SSL in a process of its own, with everything that Spark shows of them: `DIRECTORY`.

The settings come from standard input, as JSON.

Spark runs with its UI, an event log and logs at INFO. What the pages and the list of processes show is written to
files of the directory before the session ends; plans and error messages go to standard output.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

PAGES = ("jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/", "StreamingQuery/")
# The level of PySpark's gateway is that of everything, whatever `spark.log.level` is.
LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = info
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""
MODES = ("simple", "extended", "codegen", "cost", "formatted")


def main(directory: Path, settings: dict[str, Any]) -> None:
    import flintmq.pipeline
    import flintmq.spark
    from flintmq.lake import sync
    from flintmq.pipeline.runtime.runner import run
    from flintmq.spark.session import session
    from support.spark.spark_session import QUICK_JAVA

    for name in ("events", "local", "checkpoint"):
        (directory / name).mkdir()
    (directory / "log4j2.properties").write_text(LOGGING)
    spark = session(
        {
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": directory / "events",
            "spark.eventLog.compress": "false",
            "spark.local.dir": directory / "local",
            "spark.sql.warehouse.dir": directory / "warehouse",
            "spark.driver.extraJavaOptions": (
                f"{QUICK_JAVA} -Dlog4j2.configurationFile={directory}/log4j2.properties"
            ),
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
        },
        master="local[2]",
        app_name="secured",
    )
    flintmq.spark.register(spark)
    results: dict[str, Any] = {}
    for name, options in settings["options"].items():
        topic = {"topic": f"t-{name}", **options}
        frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
        frame.write.format("flintmq").mode("append").options(**topic).save()
        read = spark.read.format("flintmq").options(subscribe=f"t-{name}", **options).load()
        results[f"read {name}"] = read.count()
        for mode in MODES:
            read.explain(mode=mode)
        streamed = spark.readStream.format("flintmq").options(
            subscribe=f"t-{name}", startingOffsets="earliest", groupId=f"g-{name}", **options
        )
        # The plan of a view of a stream shows all options.
        streamed.load().createOrReplaceTempView(f"stream_{name}")
        streamed.load().explain(True)
        query = (
            streamed.load()
            .select("value")
            .writeStream.format("flintmq")
            .options(topic=f"copy-{name}", checkpointLocation=str(directory / "checkpoint" / name), **options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(True)
        print(query.lastProgress)
        copy = spark.read.format("flintmq").options(subscribe=f"copy-{name}", **options).load()
        results[f"copied {name}"] = copy.count()
    for name, security in settings["security"].items():
        done = sync(
            spark,
            f"t-{name}",
            to=str(directory / "lake"),
            bootstrap_servers=settings["address"],
            security=security,
            quarantine="topic:bad",
            decode="json",
            schema="id long",
        )
        results[f"lake {name}"] = done.rows + done.quarantined
    for name, file in settings["pipelines"].items():
        pipeline = flintmq.pipeline.load(file)
        print(pipeline_words(pipeline))
        outcome = run(spark, pipeline, once=True)
        results[f"pipeline {name}"] = sum(one.rows for one in outcome.figures.sinks.values())
        results[f"dead letters {name}"] = outcome.figures.dead_letters
    try:
        spark.read.format("flintmq").options(subscribe="t-inline", **settings["wrong"]).load().count()
    except Exception as error:
        results["wrong"] = str(error)
        print(error)
    (directory / "pages").write_text("\n".join(_pages(spark)))
    (directory / "processes").write_text("\n".join(_processes()))
    spark.stop()
    (directory / "results").write_text(json.dumps(results))


def pipeline_words(pipeline: Any) -> str:
    from flintmq.pipeline.plan.drawing import draw

    return str(draw(pipeline))


def _pages(spark: Any) -> list[str]:
    root = spark.sparkContext.uiWebUrl
    application = f"api/v1/applications/{spark.sparkContext.applicationId}"
    found = [_page(f"{root}/{name}") for name in PAGES]
    found.append(_page(f"{root}/{application}/environment"))
    queries = _page(f"{root}/{application}/sql?details=true&planDescription=true&length=10000")
    found.append(queries)
    for one in json.loads(queries):
        found.append(_page(f"{root}/SQL/execution/?id={one['id']}"))
    for one in json.loads(_page(f"{root}/{application}/jobs")):
        found.append(_page(f"{root}/jobs/job/?id={one['jobId']}"))
    return found


def _page(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=60) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        # A page of a kind that these jobs have nothing for.
        if error.code != 404:
            raise
        return ""


def _processes() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.load(sys.stdin))
