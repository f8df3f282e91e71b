"""OAUTHBEARER (RFC 7628) with signed JSON Web Tokens.

server        the exchange
token         what a token must be: signature, audience, issuer, times
keys          the issuer's public keys, and a file with them
key_endpoint  the issuer's public keys over HTTP
"""
