"""A document as a pipeline, by the declaration: every field is there, is of its kind, and knows its place. Pure.

    reader = Reader(source, environment)
    pipeline = reader.pipeline(node)            # None if there is too much wrong to have one
    reader.problems

Invariant: nothing is left out silently, and all problems are found at once. What holds between fields and between
nodes is no business of this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from flintmq.arrow.ddl_parser import DdlError, parse_columns
from flintmq.pipeline.spec.declaration import DeclaredField, FieldKind, Part, fields_of
from flintmq.pipeline.spec.document import origins
from flintmq.pipeline.spec.environment import substitute
from flintmq.pipeline.spec.model import Node, Pipeline
from flintmq.pipeline.spec.problems import Problem, Rule, did_you_mean
from flintmq.pipeline.spec.source_map import LocatedText, Place, SourceFile
from flintmq.settings.durations import EXAMPLES, duration_words, parse_duration_ms

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAG: Final = "tag:yaml.org,2002:"
_IN_WORDS: Final = {"null": "nothing", "bool": "true or false"}
_WANTED: Final = {
    FieldKind.FLAG: "true or false",
    FieldKind.COUNT: "a whole number from 1 on",
    FieldKind.NAMES: "a name, or a list of names",
    FieldKind.TEXTS: "a text, or a list of texts",
}
_FLAGS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_COLUMNS_HINT: Final = "write columns like `id long, name string, at timestamp`"
_DURATION_MS_MAX: Final = 36_500 * 86_400_000
"""A hundred years. Spark counts microseconds in 64 bits, and days in 32."""
_MISSING: Final = object()
"""What a wrong value is read as: the problem is told already."""


class SpecReader:
    def __init__(self, source: SourceFile, environment: Mapping[str, str]) -> None:
        self._source = source
        self._environment = environment
        self.problems: list[Problem] = []
        self.broken: dict[str, str] = {}
        """Names of what is in the file and cannot be read, and what they are in, such as `steps`: nobody may say that
        they are not there. What cannot be read at all is there under its own name."""

    def pipeline(self, node: yaml.Node) -> Pipeline | None:
        made = self._part(node, (Pipeline,), "the pipeline", {"file": self._source.name})
        return made if isinstance(made, Pipeline) else None

    # ---- parts

    def _part(
        self, node: yaml.Node, classes: Sequence[type[Part]], what: str, extra: Mapping[str, Any]
    ) -> Any:
        """_MISSING if it cannot be; `extra` is what it has beside its fields."""
        if isinstance(node, yaml.ScalarNode) and len(classes) == 1 and (short := classes[0].SHORT):
            field = fields_of(classes[0])[short]
            value = self._value(node, field, f"{what}.{short}")
            if value is _MISSING:
                return _MISSING
            return classes[0](**{field.attribute: value, "place": self._place(node), **extra})
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(
                node, f"{what} has fields, such as `{_example(classes)}:`, and is not {_said(node)}"
            )
        given = self._fields(node, what)
        part = self._chosen(given, classes, what, node)
        if part is None:
            return _MISSING
        known = fields_of(part)
        values: dict[str, Any] = {"place": self._place(node), **extra}
        is_whole = True
        for name, (key, value) in given.items():
            if (declared := known.get(name)) is None:
                self._unknown(name, key, part, classes, what)
                continue
            read = self._value(value, declared, name if part is Pipeline else f"{what}.{name}")
            if read is _MISSING:
                is_whole = False
            else:
                values[declared.attribute] = read
        for name, field in known.items():
            if field.is_required and name not in given:
                is_whole = False
                self._report(Rule.MISSING_FIELD, node, f"{what} needs `{name}`", f"{name}: {field.meaning}")
        if part is Pipeline:
            lost = (
                one for one in known.values() if one.kind is FieldKind.PARTS and one.attribute not in values
            )
            self.broken.update({one.name: one.name for one in lost if one.is_required or one.name in given})
            # Half a pipeline can still be checked: what is wrong in it is told already.
            return Pipeline(**{"name": "pipeline", "sources": {}, "sinks": {}, **values})
        return part(**values) if is_whole else _MISSING

    def _fields(self, node: yaml.MappingNode, what: str) -> dict[str, tuple[yaml.ScalarNode, yaml.Node]]:
        found: dict[str, tuple[yaml.ScalarNode, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(key, f"a name belongs here, not {_said(key)}")
            elif key.value in found:
                first = self._source.place(found[key.value][0].start_mark.index)
                self._report(
                    Rule.DUPLICATE,
                    key,
                    f"{what} has `{key.value}` twice",
                    f"the first is in line {first.line}",
                )
            else:
                found[key.value] = (key, value)
        return found

    def _chosen(
        self, given: Mapping[str, object], classes: Sequence[type[Part]], what: str, node: yaml.Node
    ) -> type[Part] | None:
        """The class whose tag is there."""
        if len(classes) == 1:
            return classes[0]
        fitting = [part for part in classes if part.TAG in given]
        if len(fitting) == 1:
            return fitting[0]
        tags = ", ".join(f"`{part.TAG}`" for part in classes)
        if fitting:
            both = " and ".join(f"`{part.TAG}`" for part in fitting)
            self._report(Rule.WRONG_VALUE, node, f"{what} has {both}", f"give one of {tags}")
            return None
        hint = next((f" ({name}: {did})" for name in given if (did := _near(name, classes))), "")
        self._report(Rule.MISSING_FIELD, node, f"{what} has none of {tags}", f"give one of them{hint}")
        return None

    def _unknown(
        self, name: str, key: yaml.Node, part: type[Part], classes: Sequence[type[Part]], what: str
    ) -> None:
        others = [one.TAG for one in classes if one is not part and name in fields_of(one)]
        if others:
            hint = f"`{name}` is for those with `{'`, `'.join(others)}`, and this one has `{part.TAG}`"
        else:
            hint = did_you_mean(name, fields_of(part))
        self._report(Rule.UNKNOWN_FIELD, key, f"{what} has no field `{name}`", hint)

    # ---- values

    def _value(self, node: yaml.Node, field: DeclaredField, what: str) -> Any:
        match field.kind:
            case FieldKind.PART:
                return self._part(node, field.of, what, {})
            case FieldKind.PARTS:
                return self._parts(node, field, what)
            case FieldKind.OPTIONS:
                return self._options(node, what)
            case FieldKind.NAMES | FieldKind.TEXTS:
                return self._texts(node, field, what)
            case _:
                return self._scalar(node, field, what)

    def _parts(self, node: yaml.Node, field: DeclaredField, what: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, f"{what} has names, each with its fields, and is not {_said(node)}")
        if field.is_required and not node.value:
            return self._wrong(node, f"{what} has nothing in it", "give one at least")
        found: dict[str, Any] = {}
        for name, (key, value) in self._fields(node, what).items():
            if not _NAME.fullmatch(name):
                self._wrong(key, f"{name!r} is no name", "use letters, digits and _, and a letter first")
                continue
            extra: dict[str, Any] = {"place": self._place(key)}
            if issubclass(field.of[0], Node):
                extra["name"] = name
            part = self._part(value, field.of, f"{what}.{name}", extra)
            if part is _MISSING:
                self.broken.setdefault(name, field.name)
            else:
                found[name] = part
        return found

    def _options(self, node: yaml.Node, what: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, f"{what} has names and values, and is not {_said(node)}")
        found: dict[str, Any] = {}
        for name, (key, value) in self._fields(node, what).items():
            if not isinstance(value, yaml.ScalarNode) or _tag(value) == "null":
                self._wrong(value, f"{what}.{name} is a text or a number, not {_said(value)}")
                continue
            text, _ = self._text(value)
            if text is not None:
                found[LocatedText(name, self._source, origins(self._source, key))] = text
        return found

    def _texts(self, node: yaml.Node, field: DeclaredField, what: str) -> Any:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        read = [self._plain(one, what, _WANTED[field.kind]) for one in nodes]
        if not read:
            return self._wrong(node, f"{what} has nothing in it")
        return _MISSING if None in read else tuple(read)

    def _scalar(self, node: yaml.Node, field: DeclaredField, what: str) -> Any:
        if field.kind in (FieldKind.FLAG, FieldKind.COUNT):
            return self._flag_or_count(node, field.kind, what)
        text = self._plain(node, what, "a text")
        if text is None:
            return _MISSING
        if field.choices and text not in field.choices:
            hint = did_you_mean(text, field.choices)
            return self._wrong(
                node,
                f"{what} is {', '.join(field.choices[:-1])} or {field.choices[-1]}, not {text!r}",
                hint if hint.startswith("did") else "",
            )
        if field.kind is FieldKind.DURATION:
            duration_ms = parse_duration_ms(text)
            if not duration_ms:
                return self._wrong(node, f"{what} is a time, not {text!r}", EXAMPLES)
            if duration_ms > _DURATION_MS_MAX:
                longest = duration_words(_DURATION_MS_MAX)
                return self._wrong(node, f"{what} is at most {longest}, not {text!r}", EXAMPLES)
        if field.kind is FieldKind.COLUMNS:
            try:
                parse_columns(text)
            except DdlError as error:
                self.problems.append(
                    Problem(Rule.SCHEMA, text.place_at(error.offset), f"{what}: {error}", _COLUMNS_HINT)
                )
                return _MISSING
        return text

    def _flag_or_count(self, node: yaml.Node, kind: FieldKind, what: str) -> Any:
        wanted = _WANTED[kind]
        if not isinstance(node, yaml.ScalarNode):
            return self._wrong(node, f"{what} is {wanted}, not {_said(node)}")
        text, is_substituted = self._text(node)
        if text is None:
            return _MISSING
        if kind is FieldKind.FLAG and (is_substituted or _tag(node) == "bool") and text.lower() in _FLAGS:
            return _FLAGS[text.lower()]
        if (
            kind is FieldKind.COUNT
            and (is_substituted or _tag(node) == "int")
            and re.fullmatch(r"[1-9]\d{0,17}", text)
        ):
            return int(text)
        return self._wrong(node, f"{what} is {wanted}, not {_said(node)}")

    def _plain(self, node: yaml.Node, what: str, wanted: str) -> LocatedText | None:
        if not isinstance(node, yaml.ScalarNode) or _tag(node) in ("null", "bool"):
            said = _said(node)
            hint = f'put it into quotes: "{node.value}"' if said == "true or false" else ""
            self._wrong(node, f"{what} is {wanted}, not {said}", hint)
            return None
        text, _ = self._text(node)
        if text is not None and not text.strip():
            self._wrong(node, f"{what} is empty")
            return None
        return text

    def _text(self, node: yaml.ScalarNode) -> tuple[LocatedText | None, bool]:
        """And whether something of it came from the environment."""
        done = substitute(node.value, origins(self._source, node), self._environment)
        for name, index in done.missing:
            message = f"the environment has no {name}" if name else "`${` begins no name of a variable"
            hint = (
                f"set it, or give a default: ${{{name}:-…}}" if name else "write `$${` for the two characters"
            )
            self.problems.append(Problem(Rule.ENVIRONMENT, self._source.place(index), message, hint))
        text = None if done.missing else LocatedText(done.text, self._source, done.origins)
        return text, done.has_changed

    # ---- problems

    def _wrong(self, node: yaml.Node, message: str, hint: str = "") -> object:
        self._report(Rule.WRONG_VALUE, node, message, hint)
        return _MISSING

    def _report(self, rule: Rule, node: yaml.Node, message: str, hint: str) -> None:
        self.problems.append(Problem(rule, self._place(node), message, hint))

    def _place(self, node: yaml.Node) -> Place:
        return self._source.place(node.start_mark.index)


def _tag(node: yaml.ScalarNode) -> str:
    return str(node.tag).removeprefix(_TAG)


def _said(node: yaml.Node) -> str:
    """What is there, in words."""
    if isinstance(node, yaml.MappingNode):
        return "fields"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    assert isinstance(node, yaml.ScalarNode)
    return _IN_WORDS.get(_tag(node)) or repr(node.value)


def _example(classes: Sequence[type[Part]]) -> str:
    return next(iter(fields_of(classes[0])))


def _near(name: str, classes: Sequence[type[Part]]) -> str:
    found = did_you_mean(name, [part.TAG for part in classes])
    return found if found.startswith("did") else ""
