"""Whether this machine has an IPv6 loopback."""

from __future__ import annotations

import socket

import pytest


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="toolchain: this machine has no IPv6 loopback")
