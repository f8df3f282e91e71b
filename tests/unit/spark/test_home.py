"""A home of links: all that Spark needs of the installed one, but for the zip that its workers would compile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")

from flintmq.spark.session import environment  # noqa: E402
from flintmq.spark.spark_home import quick_home  # noqa: E402


def test_a_home_has_the_jars_and_the_scripts_but_no_zip(tmp_path: Path) -> None:
    home = quick_home({"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    assert os.path.samefile(
        os.path.join(home, "jars"), os.path.join(os.path.dirname(pyspark.__file__), "jars")
    )
    assert os.access(os.path.join(home, "bin", "spark-submit"), os.X_OK)
    assert os.path.exists(os.path.join(home, "python", "pyspark", "shell.py"))
    assert not os.path.exists(os.path.join(home, "python", "lib"))
    assert quick_home({"XDG_CACHE_HOME": str(tmp_path)}) == home
    assert os.listdir(tmp_path / "flintmq") == [os.path.basename(home)]


def test_a_home_whose_links_lead_nowhere_any_more_is_made_anew(tmp_path: Path) -> None:
    home = quick_home({"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    os.unlink(os.path.join(home, "jars"))
    os.symlink("/nowhere", os.path.join(home, "jars"))
    assert quick_home({"XDG_CACHE_HOME": str(tmp_path)}) == home
    assert os.path.isdir(os.path.join(home, "jars"))


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert quick_home({"XDG_CACHE_HOME": str(file)}) is None


def test_only_spark_on_this_machine_gets_it_and_nobody_who_chose_another(tmp_path: Path) -> None:
    present = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    present.pop("SPARK_HOME", None)
    assert environment(present, master="local[2]")["SPARK_HOME"] == quick_home(present)
    assert "SPARK_HOME" not in environment(present, master="spark://head:7077")
    assert "SPARK_HOME" not in environment({**present, "SPARK_HOME": "/opt/spark"}, master="local[2]")
