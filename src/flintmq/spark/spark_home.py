"""A SPARK_HOME whose Python processes start quickly.

Spark puts the `pyspark.zip` of its home before everything else on its workers' path, and a zip has no compiled
modules: each process compiles PySpark anew, for a third of a second to a whole one. The same PySpark is installed,
and compiled, where this Python finds it. So on one machine Spark gets a home of links to the installed one, without
the zip.

Knows nothing of sessions. What cannot be linked is done without: then Spark is as slow as ever.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec

logger = logging.getLogger(__name__)

_LEFT_OUT = os.path.join("python", "lib")


def quick_home(environment: Mapping[str, str]) -> str | None:
    """None if PySpark was not installed as a package, or links cannot be made."""
    spec = find_spec("pyspark")
    installed = os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
    if not os.path.isfile(os.path.join(installed, _LEFT_OUT, "pyspark.zip")):
        return None
    name = hashlib.sha256(installed.encode()).hexdigest()[:16]
    home = os.path.join(cache_folder(environment), f"spark-{name}")
    try:
        if not os.path.exists(os.path.join(home, "jars")):
            _link(installed, home)
    except OSError as error:
        logger.debug("Spark starts from %s: %s", installed, error)
        return None
    return home


def cache_folder(environment: Mapping[str, str]) -> str:
    """Where this user's stand-ins are kept."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".cache"
    )
    return os.path.join(cache, "flintmq")


def _link(installed: str, home: str) -> None:
    """Aside, then renamed: another process may be making the same."""
    os.makedirs(os.path.dirname(home), exist_ok=True)
    aside = tempfile.mkdtemp(dir=os.path.dirname(home))
    try:
        os.chmod(aside, 0o755)  # nosec B103
        for name in ("bin", "data", "jars", "licenses", "sbin"):
            os.symlink(os.path.join(installed, name), os.path.join(aside, name))
        # The shell starts with a file in there.
        os.mkdir(os.path.join(aside, "python"))
        os.symlink(os.path.join(installed, "python", "pyspark"), os.path.join(aside, "python", "pyspark"))
        if os.path.lexists(home):
            shutil.rmtree(home, ignore_errors=True)
        os.rename(aside, home)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.exists(os.path.join(home, "jars")):
            raise
