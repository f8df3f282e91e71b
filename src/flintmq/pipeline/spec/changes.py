"""What a changed file means for the checkpoint of the old one: what may change, and what cannot. Pure.

    kept = fingerprints(old_pipeline)           # plain values, to be kept as JSON beside the checkpoint
    for change in changes(kept, fingerprints(new_pipeline)):
        if not change.is_allowed: …

Every sink is a stream of its own, with its own part of the checkpoint. So a sink may come or go with all that only it
needs; what cannot change are the streams that a sink which stays is made from, and steps with state on their way.
The checkpoint of a sink that went is still there: if the sink comes back it goes on with it, and is compared with
what it was made from when it went.
Invariant: secrets are in no fingerprint, and the places of things in the file do not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from flintmq.pipeline.spec.declaration import (
    FieldKind,
    Lasting,
    Part,
    fields_of,
    is_secret_name,
    without_credentials,
)
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import AnyNode, Pipeline
from flintmq.settings.durations import duration_words, parse_duration_ms

START: Final = "start"
_TARGETS: Final = {
    "sink topic": ("topic", "bootstrap_servers"),
    "sink table": ("table",),
    "sink files": ("files",),
    "sink jdbc": ("jdbc", "into"),
}
"""The fields that say where a sink writes to."""


class Fingerprint(NamedTuple):
    kind: str
    """source, step or sink, and which: `source topic`."""
    keeps_state: bool
    is_stream: bool
    fixed: dict[str, Any]
    """Fields that cannot change, by their names."""
    free: dict[str, Any]
    needs: list[str]
    """All that it is made from, by name, sorted; empty for a source."""

    @property
    def digest(self) -> str:
        """The same for the same node, wherever it stands in the file."""
        text = json.dumps(self, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Change:
    node: str
    message: str
    is_allowed: bool
    hint: str = ""
    """What to do, where that is not the same for all changes."""


def fingerprints(pipeline: Pipeline) -> dict[str, Fingerprint]:
    """By the names of sources, steps and sinks."""
    graph = Graph(pipeline)
    groups = (("source", pipeline.sources), ("step", pipeline.steps), ("sink", pipeline.sinks))
    return {name: _fingerprint(node, group, graph) for group, nodes in groups for name, node in nodes.items()}


def from_json(kept: Mapping[str, Any]) -> dict[str, Fingerprint]:
    """What was kept as JSON, as it was."""
    return {name: Fingerprint(*values) for name, values in kept.items()}


def changes(old: Mapping[str, Fingerprint], new: Mapping[str, Fingerprint]) -> list[Change]:
    """In the order of the old file, and what is new behind it. None if nothing changed."""
    staying = [name for name, one in old.items() if _is_sink(one) and name in new and _is_sink(new[name])]
    # What a sink that stays was made from: only this has something in a checkpoint that goes on.
    bound = {name for sink in staying for name in (sink, *old[sink].needs)}
    found: list[Change] = []
    for name, before in old.items():
        after = new.get(name)
        if after is None:
            found.append(_removed(name, before, is_bound=name in bound))
        else:
            found += _differences(name, before, after, is_bound=name in bound)
    for name, one in new.items():
        if name in old:
            continue
        users = [sink for sink in staying if name in new[sink].needs]
        is_new_stream = one.kind.startswith("source") and one.is_stream
        if users and (one.keeps_state or is_new_stream):
            what = "state" if one.keeps_state else "stream"
            found.append(Change(name, f"new, and a {what} that the sink {users[0]} had not", False))
        else:
            found.append(Change(name, f"new {one.kind}", True))
    return found


def made_from(prints: Mapping[str, Fingerprint], sink: str) -> dict[str, Fingerprint]:
    """A sink and all that it needs."""
    names = {sink, *prints[sink].needs}
    return {name: one for name, one in prints.items() if name in names}


def starts(prints: Mapping[str, Fingerprint]) -> dict[str, Any]:
    """Where streams begin, by source."""
    return {name: one.free[START] for name, one in prints.items() if one.is_stream and START in one.free}


def sinks_of(prints: Mapping[str, Fingerprint]) -> list[str]:
    return [name for name, one in prints.items() if _is_sink(one)]


def changes_of_returned(
    sink: str, old: Mapping[str, Fingerprint], new: Mapping[str, Fingerprint]
) -> list[Change]:
    """Of a sink that was gone; `old` is what it was made from then."""
    hint = "undo it, or give the sink another name and another place: with this name it goes on where it was"
    now = {name: one for name, one in new.items() if name in old or name in new[sink].needs}
    found = [
        replace(one, message=f"{one.message} since the sink `{sink}` was removed", hint=hint)
        for one in changes(old, now)
    ]
    return [Change(sink, f"back, and goes on where it was: {new[sink].kind}", True), *found]


def renamed(
    fresh: Iterable[str], gone: Mapping[str, Mapping[str, Fingerprint]], new: Mapping[str, Fingerprint]
) -> list[Change]:
    """Sinks that would write rows once more which one that is gone has written to the same place.

    `gone` has, for each such sink, what it was made from.
    """
    found: list[Change] = []
    for name in fresh:
        for before, old in gone.items():
            target = _target(new[name])
            if (
                target is not None
                and target == _target(old[before])
                and _shares_stream(old, made_from(new, name))
            ):
                message = f"new, and writes to where `{before}`, which was removed, has written its rows"
                hint = (
                    f"call it `{before}` again, and it goes on where that was; or write to another place; or remove "
                    f"sinks/{before} in the checkpoint's folder, if all rows are to be written once more"
                )
                found.append(Change(name, message, False, hint))
                break
    return found


def _target(one: Fingerprint) -> tuple[Any, ...] | None:
    """None where rows of others do not matter."""
    values = {**one.free, **one.fixed}
    if one.kind not in _TARGETS or (one.kind != "sink topic" and values.get("mode") == "complete"):
        return None
    return one.kind, *(values.get(field) for field in _TARGETS[one.kind])


def _shares_stream(old: Mapping[str, Fingerprint], new: Mapping[str, Fingerprint]) -> bool:
    def streams(prints: Mapping[str, Fingerprint]) -> list[dict[str, Any]]:
        return [one.fixed for one in prints.values() if one.kind.startswith("source") and one.is_stream]

    return any(one in streams(old) for one in streams(new))


def _removed(name: str, before: Fingerprint, *, is_bound: bool) -> Change:
    matters = before.keeps_state or (before.kind.startswith("source") and before.is_stream)
    if is_bound and matters and not _is_sink(before):
        return Change(name, f"removed, and the checkpoint has what this {before.kind} was at", False)
    return Change(name, f"removed {before.kind}", True)


def _differences(name: str, before: Fingerprint, after: Fingerprint, *, is_bound: bool) -> Iterator[Change]:
    is_static = not before.is_stream and not after.is_stream
    if before.kind != after.kind:
        matters = (
            is_bound
            and not is_static
            and (before.keeps_state or after.keeps_state or "step" not in before.kind)
        )
        yield Change(name, f"was a {before.kind} and is a {after.kind}", not matters)
        return
    if before.keeps_state != after.keeps_state:
        words = "keeps state now, and did not" if after.keeps_state else "keeps no state any more"
        yield Change(name, words, not is_bound)
    for field in dict.fromkeys((*before.fixed, *after.fixed, *before.free, *after.free)):
        was = before.fixed.get(field, before.free.get(field))
        now = after.fixed.get(field, after.free.get(field))
        # A field that was left empty, and that there is no more, has not changed.
        if (was or None) != (now or None):
            is_fixed = field in before.fixed and is_bound and not is_static
            is_past = field == START and is_bound and before.kind.startswith("source") and not is_static
            effect = "; sinks that have begun go on where they were all the same" if is_past else ""
            yield Change(name, f"{field}: {_shown(was)} became {_shown(now)}{effect}", not is_fixed)


def _fingerprint(node: AnyNode, group: str, graph: Graph) -> Fingerprint:
    keeps_state = graph.keeps_state(node)
    fixed: dict[str, Any] = {}
    free: dict[str, Any] = {}
    for name, lasting, value in _values(node, ""):
        is_fixed = lasting is Lasting.FIXED or (lasting is Lasting.STATE and keeps_state)
        (fixed if is_fixed else free)[name] = value
    needs = sorted({one.name for one in graph.upstream(node)[1:]})
    return Fingerprint(f"{group} {node.TAG}", keeps_state, graph.is_stream(node), fixed, free, needs)


def _values(part: Part, prefix: str) -> Iterator[tuple[str, Lasting, Any]]:
    """The fields of a part and of the parts in it: `dedup.keys`."""
    for name, field in fields_of(type(part)).items():
        value = getattr(part, field.attribute)
        if isinstance(value, Part):
            yield from _values(value, f"{prefix}{name}.")
        elif isinstance(value, Mapping):
            for key, one in value.items():
                if isinstance(one, Part):
                    yield from _values(one, f"{prefix}{name}.{key}.")
                elif not is_secret_name(key):
                    yield f"{prefix}{name}.{key}", field.lasting, _plain(one)
        elif not field.is_secret and value is not None:
            if field.kind is FieldKind.DURATION and (duration_ms := parse_duration_ms(value)):
                value = duration_words(duration_ms)
            yield f"{prefix}{name}", field.lasting, _plain(value)


def _plain(value: Any) -> Any:
    """As JSON has it, with white space that means nothing made one."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return " ".join(without_credentials(value).split()) if isinstance(value, str) else value


def _is_sink(one: Fingerprint) -> bool:
    return one.kind.startswith("sink")


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"
