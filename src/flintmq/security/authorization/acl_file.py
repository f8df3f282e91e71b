"""The ACL file: ACLs as YAML, for set-ups that keep them in a file (`flint.acl.file`). Pure.

    acls:
      - principal: User:alice            # or a list of principals
        allow: [Read, Describe]          # or deny; operations by Kafka's names
        topic: orders                    # or group, transactional-id, delegation-token, user, or cluster: true
        pattern: prefixed                # the names are prefixes; literal is the default
        host: 10.0.0.7                   # or a list; every host is the default

Each entry stands for the ACLs of all its principals, operations, names and hosts. A fault is reported with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import yaml

from flintmq.errors import ConfigurationError
from flintmq.security.authorization.model import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from flintmq.security.authorization.words import operation_named
from flintmq.security.principal import parse_principal

T = TypeVar("T")

ACLS_MAX: Final = 100_000
"""ACLs of one file, after its lists are multiplied out."""
_RESOURCES: Final = {
    "topic": AclResource.TOPIC,
    "group": AclResource.GROUP,
    "transactional-id": AclResource.TRANSACTIONAL_ID,
    "delegation-token": AclResource.DELEGATION_TOKEN,
    "user": AclResource.USER,
    "cluster": AclResource.CLUSTER,
}
_PERMISSIONS: Final = {"allow": AclPermission.ALLOW, "deny": AclPermission.DENY}
_KEYS: Final = {"principal", "pattern", "host", *_PERMISSIONS, *_RESOURCES}


def parse_acl_file(text: str, path: str) -> list[AclBinding]:
    """Return the ACLs of a file. Raise ConfigurationError with path, line and reason."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise _fault(path, line, f"not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _fault(path, 1, f"not valid YAML: {error}") from None
    return list(dict.fromkeys(_Reader(path).read(root)))


def _fault(path: str, line: int, why: str) -> ConfigurationError:
    return ConfigurationError(f"{path}, line {line}: {why}")


class _Reader:
    """Reads the nodes of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._room = ACLS_MAX

    def read(self, root: yaml.Node | None) -> Iterator[AclBinding]:
        if root is None:
            raise _fault(self._path, 1, "the file is empty: begin with `acls:`, or write `acls: []` for none")
        fields = self._mapping(root, {"acls"}, "the file")
        if "acls" not in fields:
            raise self._fault(root, "`acls:` is missing")
        node = fields["acls"]
        if not isinstance(node, yaml.SequenceNode):
            raise self._fault(node, "`acls` is a list: begin each entry with `- principal:`")
        for entry in node.value:
            yield from self._entry(entry)

    def _entry(self, node: yaml.Node) -> Iterator[AclBinding]:
        fields = self._mapping(node, _KEYS, "an entry")
        if "principal" not in fields:
            raise self._fault(node, "`principal` is missing: write `principal: User:alice`")
        principals = self._values(fields["principal"], lambda text: str(parse_principal(text)))
        rules = self._rules(node, fields)
        resource, names = self._resource(node, fields)
        pattern = AclPattern.LITERAL
        if "pattern" in fields:
            pattern = self._values(fields["pattern"], _read_pattern)[0]
        hosts = self._values(fields["host"], _not_empty) if "host" in fields else [WILDCARD]
        self._room -= len(principals) * len(rules) * len(names) * len(hosts)
        if self._room < 0:
            raise self._fault(node, f"the file holds more than {ACLS_MAX} ACLs from here on")
        for principal in principals:
            for permission, operation in rules:
                for name in names:
                    for host in hosts:
                        yield AclBinding(resource, name, pattern, principal, host, operation, permission)

    def _rules(
        self, node: yaml.Node, fields: dict[str, yaml.Node]
    ) -> list[tuple[AclPermission, AclOperation]]:
        rules = [
            (permission, operation)
            for key, permission in _PERMISSIONS.items()
            if key in fields
            for operation in self._values(fields[key], operation_named)
        ]
        if not rules:
            raise self._fault(node, "operations are missing: write `allow: [Read]` or `deny: [Write]`")
        return rules

    def _resource(self, node: yaml.Node, fields: dict[str, yaml.Node]) -> tuple[AclResource, list[str]]:
        given = [key for key in _RESOURCES if key in fields]
        if len(given) != 1:
            raise self._fault(
                node, f"an entry names one of {', '.join(_RESOURCES)}, not {' and '.join(given) or 'none'}"
            )
        key = given[0]
        if key == "cluster":
            self._values(fields[key], _read_true)
            return AclResource.CLUSTER, [CLUSTER_NAME]
        return _RESOURCES[key], self._values(fields[key], _not_empty)

    def _mapping(self, node: yaml.Node, known: set[str], what: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self._fault(node, f"{what} consists of `key: value` lines")
        fields: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if key.value not in known:
                raise self._fault(
                    key, f"there is no key {key.value!r} here; known are {', '.join(sorted(known))}"
                )
            if key.value in fields:
                raise self._fault(key, f"{key.value} is given twice")
            fields[key.value] = value
        return fields

    def _values(self, node: yaml.Node, read: Callable[[str], T]) -> list[T]:
        """Return one value, or those of a list, each read."""
        values = []
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(one, yaml.ScalarNode):
                raise self._fault(one, "a text or a list of texts is expected")
            try:
                values.append(read(one.value))
            except ValueError as error:
                raise self._fault(one, str(error)) from None
        if not values:
            raise self._fault(node, "the list is empty")
        return values

    def _fault(self, node: yaml.Node, why: str) -> ConfigurationError:
        return _fault(self._path, node.start_mark.line + 1, why)


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("the name is empty")
    return text


def _read_true(text: str) -> bool:
    if text.lower() != "true":
        raise ValueError("write `cluster: true`")
    return True


def _read_pattern(text: str) -> AclPattern:
    found = {"literal": AclPattern.LITERAL, "prefixed": AclPattern.PREFIXED}.get(text.lower())
    if found is None:
        raise ValueError(f"the pattern is literal or prefixed, not {text!r}")
    return found
