"""Write `docs/configuration.md` from the declared settings. Run it after changing one.

scripts/make_configuration_doc.py            writes the file
scripts/make_configuration_doc.py --check    exits with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from flintmq.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, SettingKind
from flintmq.settings.kinds import INT_MAX, LONG_MAX
from flintmq.settings.names import SHORT_NAMES, UNAVAILABLE

TARGET = Path(__file__).parent.parent / "docs" / "configuration.md"

INTRODUCTION = """\
# Configuration

<!-- Made by scripts/make_configuration_doc.py from src/flintmq/settings: do not edit. -->

FlintMQ needs no configuration to start. What you set, you set by Kafka's names; settings of our own begin
with `flint.`. `flintmq config` lists every setting with its value and where the value comes from.

## Where a value comes from

The first that has one wins:

1. what was changed while the broker runs (`kafka-configs.sh`, any admin client), where the table allows it;
2. the command line: `flintmq serve --set log.retention.ms=1h`;
3. the environment: `FLINTMQ_` and the name in capitals with `_` for `.` (`FLINTMQ_LOG_RETENTION_MS=1h`);
4. the file given with `--config` (or `--settings`), in YAML or TOML;
5. the default.

A name that does not exist or a value that cannot be stops the start with a message that says where it stands
and which name is near.

## The file

Flat and nested names mean the same, in YAML

```yaml
num.partitions: 3
log:
  dirs: /var/lib/flintmq
  retention.ms: 7d
```

and in TOML:

```toml
"num.partitions" = 3

[log]
dirs = "/var/lib/flintmq"
retention.ms = "7d"
```

## Units

Wherever a setting counts bytes or time, the command line, the environment and the file accept units: `64k`,
`512MB`, `2GiB` (powers of 1024, with or without the `i`), `250ms`, `30s`, `5m`, `1h`, `7d`, `2w`. Ratios may
be given as `80%`. A plain number counts bytes or milliseconds. On the wire (admin clients) only plain numbers
are accepted, as in Kafka.
"""

BROKER = """\
## Broker settings

*Change* says whether the setting can be changed while the broker runs: for the whole cluster or one broker
(`cluster-wide`), for one broker only (`per-broker`), or not at all (`read-only`).
"""

TOPIC = """\
## Topic settings

Given when a topic is created, or changed at any time. What a topic does not set, it takes from the first
broker setting in the last column that is set.
"""


def render() -> str:
    sections = (
        INTRODUCTION,
        _short_names(),
        BROKER,
        _table(
            ("Name", "Type", "Default", "Valid", "Change", "Meaning"),
            map(_broker_row, BROKER_SETTINGS.values()),
        ),
        TOPIC,
        _table(
            ("Name", "Type", "Default", "Valid", "Meaning", "From the broker's"),
            map(_topic_row, TOPIC_SETTINGS.values()),
        ),
    )
    return "\n".join(sections)


def _short_names() -> str:
    effective = _table(
        ("Short name", "Sets"),
        ((_code(name), _code(target)) for name, target in SHORT_NAMES.items()),
    )
    later = ", ".join(f"`{name}`" for name in UNAVAILABLE)
    return (
        "## Short names\n\n"
        "A few short names are accepted as well: in files as they are, in the environment in capitals, with\n"
        "or without the prefix (`RETENTION=1h`, `BROKER_PORTS=9092,9094`).\n\n"
        f"{effective}\n"
        "`broker_ports` and `kafka_hostname` (the address to bind) together make `listeners`: every port on\n"
        "that address, and on loopback where no address is given.\n\n"
        f"Known, but without effect in this version: {later}. They are ignored with a warning.\n"
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _broker_row(declared: Setting) -> tuple[str, ...]:
    names = ", ".join(_code(alias) for alias in declared.aliases)
    meaning = declared.doc + (f" Also {names}." if names else "")
    return (*_common(declared), declared.dynamic.value, meaning)


def _topic_row(declared: Setting) -> tuple[str, ...]:
    synonyms = ", ".join(_code(synonym.name) for synonym in declared.synonyms)
    return (*_common(declared), declared.doc, synonyms)


def _common(declared: Setting) -> tuple[str, ...]:
    words = declared.check.words if declared.check else ""
    return (_code(declared.name), declared.kind.name.lower(), _default(declared), words)


def _default(declared: Setting) -> str:
    text = declared.format(declared.default)
    if not text:
        return "none"
    if declared.kind in (SettingKind.INT, SettingKind.LONG) and declared.default in (INT_MAX, LONG_MAX):
        return "no limit"
    return _code(text)


def _code(text: str) -> str:
    return f"`{text}`"


def main() -> int:
    text = render()
    if "--check" in sys.argv:
        return 0 if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text else 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"wrote {TARGET}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
