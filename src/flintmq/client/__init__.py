"""A small client of the Kafka protocol, on the broker's own codec: for the command line and for readers.

    addresses, api_versions, wire, metadata    pure: names, negotiation, frames, the known cluster
    partitioner, batching, fetched_records     pure: which partition, which batch, which records
    retries                                    pure: what is worth another attempt, and when
    sasl, security                             pure: authentication, and the settings for it
    credentials/                               secrets where they are needed: variables, files, token endpoints
    transport, tls, connection                 one socket, one broker
    cluster                                    all brokers of a cluster: leaders, reconnecting, retrying
    producer, batch_producer, consumer         writing and reading records
    assignors                                  pure: how members of a group share partitions
    group_membership, group_consumer           being a member of a group, and reading as one
    transaction                                transactions that one process begins and another ends
    coordinators                               the broker that coordinates a group or a transactional id
    admin/                                     topics, groups, transactions, maintenance and segments

The pure modules hold every decision, so that a client on another kind of I/O can share them.
"""
