"""A small client of the Kafka protocol, on the broker's own codec: for the command line and for readers.

    addresses, versions, wire, view      pure: names, negotiation, frames, what is known of the cluster
    partitioner, batching, fetching      pure: which partition, which batch, which records
    retries                              pure: what is worth another attempt, and when
    transport, connection                one socket, one broker
    cluster                              all brokers of a cluster: leaders, reconnecting, retrying
    admin, producer, consumer            what one does with it
    assignment                           pure: how members of a group share partitions
    groups, membership, group_consumer   groups from outside, being a member, reading as one
    transactions                         transactions from outside: listed, described, aborted; hanging ones found
    coordinators                         the broker that looks after a group or a transactional id

The pure modules hold every decision, so that a client on another kind of I/O can share them.
"""
