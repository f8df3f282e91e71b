"""How a pipeline connects: its own settings for TLS and SASL, and those of a source or sink. Pure.

Invariant: settings of the pipeline are used for the pipeline's brokers only; a source or sink with other brokers has
its own among its options, so that no password is sent to a cluster that it is not meant for.
"""

from __future__ import annotations

from flintmq.arrow.security_options import PREFIX, is_security_option
from flintmq.client.security import ClientSecurity, parse_security, security_properties
from flintmq.pipeline.spec.model import Pipeline, TopicSink, TopicSource


def pipeline_security(pipeline: Pipeline) -> ClientSecurity:
    return parse_security(security_properties(pipeline.security))


def connection_options(pipeline: Pipeline, node: TopicSource | TopicSink) -> dict[str, str]:
    """Return the options of source or sink that say where and how to connect."""
    servers = str(node.bootstrap_servers or pipeline.bootstrap_servers)
    options = {f"{PREFIX}bootstrap.servers": servers}
    has_own = any(is_security_option(name) for name in node.options)
    if not has_own and servers == str(pipeline.bootstrap_servers):
        options.update({f"{PREFIX}{name}": str(value) for name, value in pipeline.security.items()})
    return options
