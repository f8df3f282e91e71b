"""Sockets: listeners, connections, the inbound buffers and the outbound pump. Knows frames, not requests."""
