"""The text format of Prometheus, version 0.0.4: written for a scrape, and read for `flintmq top`.

Invariant: what is written was declared, with as many label values as its declaration names; all lines of one
metric stand together, in the order of the declared list. Writing is cheap and may be done piece by piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flintmq.metrics.counters import LATENCY_BOUNDS_S
from flintmq.metrics.declared import BY_NAME, METRICS, Metric, MetricType

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_UNESCAPED = re.compile(r"\\(.)")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?')
# Label values may come from clients: a name that is too long serves nobody.
_VALUE_SIZE_MAX = 256


class Exposition:
    """One scrape under way."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, value: float, *label_values: object) -> None:
        metric = BY_NAME[name]
        self._lines.setdefault(name, []).append(
            f"{name}{_braced(label_text(metric, *label_values))} {number(value)}\n"
        )

    def add_labelled(self, name: str, value: float, labels: str) -> None:
        """The same for a text of `label_text` that serves several metrics with the same labels."""
        self._lines.setdefault(name, []).append(f"{name}{{{labels}}} {number(value)}\n")

    def add_histogram(self, name: str, buckets: Sequence[int], total: float, *label_values: object) -> None:
        """`buckets` hold what fell between one bound and the next; the last one what is above all bounds."""
        labels = label_text(BY_NAME[name], *label_values)
        lines = self._lines.setdefault(name, [])
        before = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{"
        below = 0
        for bound, inside in zip(LATENCY_BOUNDS_S, buckets, strict=False):
            below += inside
            lines.append(f'{before}le="{number(bound)}"}} {below}\n')
        count = below + buckets[-1]
        lines.append(f'{before}le="+Inf"}} {count}\n')
        lines.append(f"{name}_sum{_braced(labels)} {number(total)}\n")
        lines.append(f"{name}_count{_braced(labels)} {count}\n")

    def text(self) -> Iterator[str]:
        """Metric by metric; those that have no series now are left out."""
        for metric in METRICS:
            lines = self._lines.get(metric.name)
            if lines:
                yield heading(metric) + "".join(lines)


def heading(metric: Metric) -> str:
    doc = metric.doc.translate({ord("\\"): "\\\\", ord("\n"): "\\n"})
    return f"# HELP {metric.name} {doc}\n# TYPE {metric.name} {metric.kind.value}\n"


def label_text(metric: Metric, *values: object) -> str:
    return ",".join(
        f'{label}="{str(value)[:_VALUE_SIZE_MAX].translate(_ESCAPES)}"'
        for label, value in zip(metric.labels, values, strict=True)
    )


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def number(value: float) -> str:
    """Whole numbers without a fraction, others as short as they can be read back."""
    if isinstance(value, int):
        return str(value)
    return repr(int(value)) if value.is_integer() else repr(value)


@dataclass(slots=True)
class Scrape:
    """What a scrape said: for each series name its samples, by their labels."""

    samples: dict[str, list[tuple[Mapping[str, str], float]]] = field(default_factory=dict)

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series that have these labels; 0 if there are none."""
        return sum(value for found, value in self.samples.get(name, ()) if labels.items() <= found.items())

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Sums by the values of these labels."""
        sums: dict[tuple[str, ...], float] = {}
        for found, value in self.samples.get(name, ()):
            key = tuple(found.get(label, "") for label in labels)
            sums[key] = sums.get(key, 0.0) + value
        return sums


def parse(text: str) -> Scrape:
    """Read an exposition, of this broker or of another; ValueError if it is none."""
    scrape = Scrape()
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.match(line)
        if match is None:
            raise ValueError(f"{line[:80]!r} is no sample")
        labels = {
            name: _UNESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
            for name, value in _LABEL.findall(match[2] or "")
        }
        scrape.samples.setdefault(match[1], []).append((labels, float(match[3])))
    return scrape


def series_of(metric: Metric) -> tuple[str, ...]:
    """The names under which a metric's samples stand."""
    if metric.kind is not MetricType.HISTOGRAM:
        return (metric.name,)
    return (f"{metric.name}_bucket", f"{metric.name}_sum", f"{metric.name}_count")
