"""Changing the settings of topics and brokers at run time: what a resource is, and the transaction.

A change is decided on the settings as the image shows them and written only if they are still the same then,
so that two who change different settings of one resource never undo each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from flintmq.errors import ConfigurationError, ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.configs import Configs, PreparedChange
from flintmq.metadata.store import Put
from flintmq.metadata.topics import check_name
from flintmq.settings import Alteration, BrokerValues, alter_broker, alter_topic
from flintmq.settings.references import redact

_ATTEMPTS_MAX = 8

Decide = Callable[[Mapping[str, str]], Sequence[Alteration]]
"""The alterations, given the settings that the resource has."""


class ResourceType(IntEnum):
    """Kafka's numbers for what has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def check_node(name: str, node_id: int) -> None:
    """A broker's settings are read and changed at that broker."""
    try:
        named = int(name)
    except ValueError:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"The broker must be named by its number, not {name!r}."
        ) from None
    if named != node_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"This is broker {node_id}, not {name}.")


class ConfigChanges:
    def __init__(self, metadata: ClusterMetadata, configs: Configs, node_id: int) -> None:
        self._metadata = metadata
        self._configs = configs
        self._node_id = node_id

    async def alter_topic(self, name: str, decide: Decide, *, validate_only: bool) -> None:
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "Topics have no settings in common; name one.")
        check_name(name)
        key, image = keys.topic_config(name), self._metadata.image
        for _ in range(_ATTEMPTS_MAX):
            current = image.topic_configs.get(name, {})
            altered = alter_topic(current, decide(current), self._configs.broker)
            topic = image.topics.get(name)
            if topic is None:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name!r} does not exist.")
            if validate_only or altered == current:
                return
            # The topic's own key is compared too: settings must not outlive a topic deleted meanwhile.
            if await self._write(key, altered, {keys.topic(name): topic.revision}, self._revision(key)):
                return
        raise _contended(f"topic {name!r}")

    async def alter_broker(self, name: str, decide: Decide, *, validate_only: bool) -> None:
        """`name` is this broker's number, or empty for the settings that all brokers share."""
        if name:
            check_node(name, self._node_id)
            name = str(self._node_id)
        async with self._configs.changing:
            for _ in range(_ATTEMPTS_MAX):
                if await self._alter_broker(name, decide, validate_only=validate_only):
                    return
        raise _contended(f"broker {name}" if name else "all brokers")

    async def _alter_broker(self, name: str, decide: Decide, *, validate_only: bool) -> bool:
        """Return False if the settings were changed by others meanwhile."""
        key = keys.broker_config(name)
        # ORDER: the revision BEFORE anything is awaited: it belongs to the settings that the change is decided on.
        revision = self._revision(key)
        values = self._configs.values
        current = values.dynamic if name else values.dynamic_default
        altered = alter_broker(values, decide(current), per_broker=bool(name))
        prepared = await self._prepare(
            BrokerValues(values.static, values.dynamic_default, altered)
            if name
            else BrokerValues(values.static, altered, values.dynamic)
        )
        try:
            if validate_only or altered == current:
                return True
            if not await self._write(key, altered, {}, revision):
                return False
            await prepared.commit()
            return True
        finally:
            prepared.abandon()

    async def _prepare(self, values: BrokerValues) -> PreparedChange:
        try:
            return await self._configs.prepare(values.config())
        except ConfigurationError as error:
            reason = redact(str(error), values.merged())
            raise RequestError(ErrorCode.INVALID_REQUEST, reason) from None

    def _revision(self, key: str) -> int:
        return self._metadata.image.config_revisions.get(key, 0)

    async def _write(
        self, key: str, altered: Mapping[str, str], expect: Mapping[str, int], revision: int
    ) -> bool:
        put = Put(keys.encode(altered)) if altered else None
        outcome = await self._metadata.txn({key: revision, **expect}, {key: put})
        return outcome.committed


def _contended(what: str) -> RequestError:
    return RequestError(
        ErrorCode.REQUEST_TIMED_OUT, f"The settings of {what} are being changed by others; try again."
    )
