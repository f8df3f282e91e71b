"""A small HTTP/1.1 listener for what operators read: metrics, health, an overview. Reading only.

request          the head of a request from bytes, pure
server           sockets, limits, and pages by their paths: the only HTTP server
metrics_server   that server in a thread, for programs that are not brokers

Invariant: whatever a client does here, the program does not notice: few connections, short heads, no bodies,
every wait has an end.
"""
