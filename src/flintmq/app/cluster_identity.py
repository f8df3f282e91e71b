"""What a cluster is given once, at its first start: its id, and the secret of its authentication."""

from __future__ import annotations

from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.store import Put
from flintmq.records.uuids import encode_uuid


async def ensure_cluster_id(metadata: ClusterMetadata, random: bytes) -> None:
    if not metadata.image.cluster_id:
        value = keys.ClusterValue(id=encode_uuid(random))
        await metadata.txn({keys.CLUSTER: 0}, {keys.CLUSTER: Put(keys.encode(value))})


async def ensure_sasl_secret(metadata: ClusterMetadata, random: bytes) -> None:
    if not metadata.image.sasl_secret:
        value = keys.SaslSecretValue(secret=random)
        await metadata.txn({keys.SASL_SECRET: 0}, {keys.SASL_SECRET: Put(keys.encode(value))})
