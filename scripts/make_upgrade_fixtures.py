"""Make the archives of stored data in `tests/upgrade/fixtures`, which tests open with today's code.

    scripts/make_upgrade_fixtures.py NAME…       makes these archives; --help lists them

The archives are of version 0.1.0. They are not made again when the code changes, or they would no longer show that
today's code reads what 0.1.0 wrote: a later version adds archives of its own beside them. An archive that exists is
replaced only with `--replace`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.upgrade import stored_broker, stored_lake, stored_streams
from support.upgrade.archives import archive

FIXTURES: dict[str, Callable[[], None]] = {
    "broker-clean": partial(stored_broker.make, "broker-clean", kill=False),
    "broker-killed": partial(stored_broker.make, "broker-killed", kill=True),
    "lake": partial(stored_lake.make, "lake"),
    "spark": partial(stored_streams.make_query, "spark"),
    "pipeline": partial(stored_streams.make_pipeline, "pipeline"),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=FIXTURES, metavar="NAME", help=", ".join(FIXTURES))
    parser.add_argument("--replace", action="store_true", help="replace archives that exist")
    options = parser.parse_args()
    existing = [name for name in options.names if archive(name).exists()]
    if existing and not options.replace:
        print(
            f"exists already: {', '.join(existing)}; add archives instead of replacing them", file=sys.stderr
        )
        return 1
    for name in options.names:
        FIXTURES[name]()
        print(f"wrote {archive(name)}: {archive(name).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
