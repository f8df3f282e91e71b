"""The settings in force: what the process was started with, overlaid by what was changed at run time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from flintmq.errors import ConfigurationError, RequestError
from flintmq.metadata.image import ClusterImage
from flintmq.settings import BrokerConfig, BrokerValues, TopicConfig, parse_topic_config

logger = logging.getLogger(__name__)


class PreparedChange(Protocol):
    """What changed settings need besides being stored: done with `commit`, undone with `abandon`."""

    async def commit(self) -> None:
        """Called when the settings are stored and in force. Must not fail."""
        ...

    def abandon(self) -> None:
        """Called if they are not stored, and after `commit`, when it does nothing."""
        ...


class _NothingToDo:
    async def commit(self) -> None:
        pass

    def abandon(self) -> None:
        pass


async def _accept(_: BrokerConfig) -> PreparedChange:
    return _NothingToDo()


class Configs:
    def __init__(self, image: ClusterImage, static: Mapping[str, str], node_id: int) -> None:
        self._image = image
        self._static = static
        self._node = str(node_id)
        self._without_overrides: TopicConfig | None = None
        self.broker: BrokerConfig = BrokerValues(static=static).config()
        self.prepare: Callable[[BrokerConfig], Awaitable[PreparedChange]] = _accept
        """Raises ConfigurationError for settings that this broker cannot use, whatever their values say alone."""
        self.changing = asyncio.Lock()
        """Held while a change of the broker's settings is prepared, stored and committed."""
        self.refresh()

    @property
    def values(self) -> BrokerValues:
        configs = self._image.broker_configs
        return BrokerValues(
            static=self._static, dynamic_default=configs.get("", {}), dynamic=configs.get(self._node, {})
        )

    def refresh(self) -> None:
        """The dynamic settings changed, which were checked when they were set; or what settings refer to."""
        self._without_overrides = None
        try:
            self.broker = self.values.config()
        except ConfigurationError as error:
            logger.error("changed broker settings cannot be used, the earlier ones stay in force: %s", error)

    def topic(self, name: str) -> TopicConfig:
        overrides = self._image.topic_configs.get(name)
        if overrides:
            try:
                return parse_topic_config(overrides, self.broker)
            except RequestError as error:
                logger.error("the settings of topic %s cannot be used, its defaults are: %s", name, error)
        if self._without_overrides is None:
            self._without_overrides = parse_topic_config({}, self.broker)
        return self._without_overrides
