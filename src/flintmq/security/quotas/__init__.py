"""Quotas: how fast a client may go, and how long it has to wait when it went faster.

rate               measured rates: Kafka's sampled windows, and its token bucket
client_quotas      limits and rates of users and client ids, by Kafka's order of precedence
connection_rates   how often addresses may connect
"""
