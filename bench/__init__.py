"""FlintMQ beside Apache Kafka: the same workloads, the same client, one core for each broker.

    machine     what /proc says of processes and of the machine; cores
    figures     a measured value, the best of several, the ratio of two brokers
    peers       how each broker is prepared and started
    process     a running broker, and what it has cost so far
    wire        a socket that speaks the protocol, with next to no cost on the client's side
    loads       prebuilt produce requests, fetch loops, several connections at once
    rdkafka     the same through librdkafka
    workloads   what is measured: one list
    suite       rounds, interleaved
    report      tables, JSON, Markdown

Run it with `python -m bench`. Nothing in `src` may import this package; it uses only FlintMQ's codec, so
that what it measures is a broker behind a socket and nothing else.
"""
