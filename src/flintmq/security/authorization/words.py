"""Operations as people write them: `Read`, `DescribeConfigs`, `DESCRIBE_CONFIGS`. Pure."""

from __future__ import annotations

from typing import Final

from flintmq.security.authorization.model import AclOperation


def _letters(text: str) -> str:
    return text.replace("_", "").replace("-", "").lower()


_OPERATIONS: Final = {_letters(one.name): one for one in AclOperation if one is not AclOperation.ANY}


def operation_named(text: str) -> AclOperation:
    """Read an operation. Raise ValueError with those that exist."""
    found = _OPERATIONS.get(_letters(text))
    if found is None:
        known = ", ".join(operation_word(one) for one in _OPERATIONS.values())
        raise ValueError(f"there is no operation {text!r}; choose one of {known}")
    return found


def operation_word(operation: AclOperation) -> str:
    """Return Kafka's spelling in its tools, such as `DescribeConfigs`."""
    return "".join(part.capitalize() for part in operation.name.split("_"))
