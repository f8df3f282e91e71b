"""Addresses in one spelling, so that an ACL's host and a client's address can be compared. Pure."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def canonical_host(text: str) -> str:
    """Return an address in its shortest form, an IPv4 address mapped to IPv6 as IPv4; other texts unchanged."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
