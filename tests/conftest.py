"""What every test shares: the `--long` option, and a loud word about tests that a missing tool kept out.

Hypothesis tries the same examples in every default run, so that a run says something of the change and not of chance;
with `--long` they are new ones each time.

The garbage collector leaves out what collection has made: thousands of tests and all modules, which live to the end.
A full collection would otherwise take a second, in whichever test it happens.

Brokers that tests start as processes run what users run, the compiled core where `./flint test` has compiled it. The
tests' own process runs the sources, so that tests can replace parts of them; with
`./flint test --compiled` it runs the compiled core too, and tests marked `plain` are left out.

A test that needs a tool which may be absent (Java, kcat, a client library) skips with a reason that begins
with `toolchain:`, so that a run without the tool cannot be taken for a full one.
"""

from __future__ import annotations

import gc
import signal

import pytest
from hypothesis import settings

from flintmq.compiled import is_compiled

TOOLCHAIN = "toolchain:"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests marked `long`")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until `pytest_collection_finish`: there is no garbage worth the search
    settings.register_profile("default run", derandomize=not config.getoption("--long"), deadline=None)
    settings.load_profile("default run")
    # A shell without job control starts its background jobs with SIGINT ignored, and so would be every process that
    # a test starts and ends with Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {"plain"} if is_compiled() else set()
    if not config.getoption("--long"):
        left_out.add("long")
    deselected = [item for item in items if any(map(item.get_closest_marker, left_out))]
    if deselected:
        items[:] = [item for item in items if not any(map(item.get_closest_marker, left_out))]
        config.hook.pytest_deselected(items=deselected)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else extension modules report leaks at the exit


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--long"):
        terminalreporter.write_line("Tests marked `long` were left out; run them with: ./flint test --long")
    missing: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if reason.startswith(TOOLCHAIN):
                missing[reason] = missing.get(reason, 0) + 1
    if missing:
        terminalreporter.section("NOT TESTED: tools are missing", sep="!", red=True, bold=True)
        for reason, count in sorted(missing.items()):
            terminalreporter.write_line(
                f"{count} skipped: {reason.removeprefix(TOOLCHAIN).strip()}", red=True
            )
