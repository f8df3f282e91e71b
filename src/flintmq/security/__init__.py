"""Who a client is and what it may do: decisions without sockets.

principal          the name under which a client acts
certificate, principal_mapping    names in client certificates
authentication/    SASL: mechanisms, credentials, and the exchange of one connection
authorization/     ACLs, their index, and the authorizers that decide by them
quotas/            rates, their limits, and how long a client has to wait
"""
